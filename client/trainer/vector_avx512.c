/* The loops for AVX-512. */
#include "client/trainer/vector_loops.h"

const struct vector_table vector_table_avx512 = VECTOR_TABLE;
