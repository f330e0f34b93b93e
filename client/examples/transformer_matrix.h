/* What the transformer computes with: views of row-major matrices, and their product by OpenBLAS,
 * which transformer_matrix.c alone knows.
 *
 * `real` is float. The unit test compiles the same sources with double, so that it can tell a wrong
 * derivative from a rounding. */
#ifndef GRADWEIR_EXAMPLES_TRANSFORMER_MATRIX_H
#define GRADWEIR_EXAMPLES_TRANSFORMER_MATRIX_H

#include <stdbool.h>
#include <stddef.h>

#ifndef TRANSFORMER_REAL
#define TRANSFORMER_REAL float
#endif
typedef TRANSFORMER_REAL real;

/* rows x columns, of which element (i, j) is at[i * stride + j]; turned: at[j * stride + i]. */
struct matrix {
    real *at;
    size_t rows, columns, stride;
    bool turned;
};

/* rows x columns without gaps. */
struct matrix matrix_of(real *at, size_t rows, size_t columns);

/* The transpose: the same memory, read the other way. */
struct matrix matrix_turned(struct matrix matrix);

/* c = scale a b + keep c. c is not turned, and apart from a and b. */
void matrix_multiply(real scale, struct matrix a, struct matrix b, real keep, struct matrix c);

/* First thing in main: one thread, for ranks share the machine. OpenBLAS starts its threads when it
 * is loaded, which only its environment variable prevents: so the program sets that and starts
 * itself again, once. */
void matrix_start_single_threaded(char **argv);

#endif
