/* See blas.h. */
#include "client/trainer/blas.h"

#include <cblas.h>
#include <stdlib.h>
#include <unistd.h>

void blas_init(void)
{
    openblas_set_num_threads(1);
}

void blas_restart_single_threaded(char **argv)
{
    if (getenv("OPENBLAS_NUM_THREADS") == NULL && setenv("OPENBLAS_NUM_THREADS", "1", 0) == 0)
        execv("/proc/self/exe", argv);
}

void blas_times_transposed(struct blas_sizes sizes, const float *a, const float *b, float *c)
{
    const blasint m = (blasint)sizes.m, n = (blasint)sizes.n, k = (blasint)sizes.k;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, a, k, b, k, 0, c, n);
}

void blas_times(struct blas_sizes sizes, const float *a, const float *b, float *c)
{
    const blasint m = (blasint)sizes.m, n = (blasint)sizes.n, k = (blasint)sizes.k;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, a, k, b, n, 0, c, n);
}

void blas_transposed_times(struct blas_sizes sizes, const float *a, const float *b, float *c)
{
    const blasint m = (blasint)sizes.m, n = (blasint)sizes.n, k = (blasint)sizes.k;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, m, n, k, 1, a, m, b, n, 0, c, n);
}
