/* The arithmetic the baseline of the machine, the definition of the bits. */
#define ARITHMETIC_SET      arithmetic_scalar
#define ARITHMETIC_SET_NAME "scalar"
#include "common/arithmetic_optimizers.h"
