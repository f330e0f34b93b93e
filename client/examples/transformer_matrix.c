/* See transformer_matrix.h. */
#include "client/examples/transformer_matrix.h"

#include <cblas.h>
#include <stdlib.h>
#include <unistd.h>

/* The product of OpenBLAS for what `real` is. */
#define GEMM _Generic((real)0, float : cblas_sgemm, double : cblas_dgemm)

struct matrix matrix_of(real *at, size_t rows, size_t columns)
{
    return (struct matrix){.at = at, .rows = rows, .columns = columns, .stride = columns};
}

struct matrix matrix_turned(struct matrix matrix)
{
    return (struct matrix){.at = matrix.at,
                           .rows = matrix.columns,
                           .columns = matrix.rows,
                           .stride = matrix.stride,
                           .turned = !matrix.turned};
}

void matrix_multiply(real scale, struct matrix a, struct matrix b, real keep, struct matrix c)
{
    GEMM(CblasRowMajor, a.turned ? CblasTrans : CblasNoTrans, b.turned ? CblasTrans : CblasNoTrans,
         (blasint)c.rows, (blasint)c.columns, (blasint)a.columns, scale, a.at, (blasint)a.stride,
         b.at, (blasint)b.stride, keep, c.at, (blasint)c.stride);
}

void matrix_start_single_threaded(char **argv)
{
    if (getenv("OPENBLAS_NUM_THREADS") == NULL && setenv("OPENBLAS_NUM_THREADS", "1", 0) == 0)
        execv("/proc/self/exe", argv);
    openblas_set_num_threads(1);
}
