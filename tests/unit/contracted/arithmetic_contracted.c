/* The arithmetic compiled wrongly on purpose: with fused multiply-add and contraction allowed. The
 * test of equal bits must see the difference, or it sees nothing. */
#define ARITHMETIC_SET      arithmetic_contracted
#define ARITHMETIC_SET_NAME "contracted"
#include "common/arithmetic_optimizers.h"
