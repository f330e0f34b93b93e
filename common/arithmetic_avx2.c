/* The arithmetic for machines with avx2; its flags are in CMakeLists.txt. */
#define ARITHMETIC_SET      arithmetic_avx2
#define ARITHMETIC_SET_NAME "avx2"
#include "common/arithmetic_optimizers.h"
