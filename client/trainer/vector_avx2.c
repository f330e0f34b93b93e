/* The loops for AVX2. */
#include "client/trainer/vector_loops.h"

const struct vector_table vector_table_avx2 = VECTOR_TABLE;
