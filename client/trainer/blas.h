/* Matrix products of row-major float matrices, by OpenBLAS; blas.c is the only file that knows it.
 * One thread: a worker uses one core, and the machine is shared with other workers. */
#ifndef GRADWEIR_TRAINER_BLAS_H
#define GRADWEIR_TRAINER_BLAS_H

#include <stddef.h>

/* The result C is [m, n], and k is the length that is summed over. */
struct blas_sizes {
    size_t m;
    size_t n;
    size_t k;
};

/* Once, before the first product: pins OpenBLAS to the calling thread. */
void blas_init(void);

/* First thing in main: OpenBLAS starts its threads when it is loaded, and they spin for a tenth of
 * a second before they sleep. Only its environment variable prevents that, so the program sets it
 * and starts itself again, once. Returns when it is set already, or when starting again is not
 * possible (then it only costs time). */
void blas_restart_single_threaded(char **argv);

/* C = A B^T, with A [m, k] and B [n, k]. */
void blas_times_transposed(struct blas_sizes sizes, const float *a, const float *b, float *c);

/* C = A B, with A [m, k] and B [k, n]. */
void blas_times(struct blas_sizes sizes, const float *a, const float *b, float *c);

/* C = A^T B, with A [k, m] and B [k, n]. */
void blas_transposed_times(struct blas_sizes sizes, const float *a, const float *b, float *c);

#endif
