/* The arithmetic for machines with avx512; its flags are in CMakeLists.txt. */
#define ARITHMETIC_SET      arithmetic_avx512
#define ARITHMETIC_SET_NAME "avx512"
#include "common/arithmetic_optimizers.h"
