/* The loops for any processor. */
#include "client/trainer/vector_loops.h"

const struct vector_table vector_table_scalar = VECTOR_TABLE;
