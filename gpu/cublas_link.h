/* cuBLAS, found when a GPU is opened. It is not linked: two libraries of 600 MB together would have
 * to be there for the program to start at all, on machines that have no GPU as well; and it is not
 * linked in, for it would make every program hundreds of MB larger. So a machine that trains on a
 * GPU has them (the CUDA toolkit, or the package libcublas), and others do without. */
#ifndef GRADWEIR_GPU_CUBLAS_LINK_H
#define GRADWEIR_GPU_CUBLAS_LINK_H

#include "client/trainer/blas.h"
#include "client/trainer/engine.h"

#include <cublas_v2.h>

/* The calls of cuBLAS that we use, as the library that was found has them. */
struct cublas_link {
    void *loaded; /* by dlopen */
    cublasStatus_t (*create)(cublasHandle_t *handle);
    cublasStatus_t (*destroy)(cublasHandle_t handle);
    cublasStatus_t (*set_stream)(cublasHandle_t handle, cudaStream_t stream);
    cublasStatus_t (*set_workspace)(cublasHandle_t handle, void *workspace, size_t bytes);
    cublasStatus_t (*set_math_mode)(cublasHandle_t handle, cublasMath_t mode);
    cublasStatus_t (*sgemm)(cublasHandle_t handle, cublasOperation_t a, cublasOperation_t b, int m,
                            int n, int k, const float *alpha, const float *A, int lda,
                            const float *B, int ldb, const float *beta, float *C, int ldc);
    const char *(*status_text)(cublasStatus_t status);
};

/* ERR_UNSUPPORTED, with what to install, when there is none of the version that this program was
 * built for. */
gradweir_status cublas_link_open(struct cublas_link *link, struct engine_reason *reason);
void cublas_link_close(struct cublas_link *link);

/* A stream's products of row-major matrices. The workspace is given, so that the calls may be
 * captured into a graph and the same calls give the same bits. */
struct cublas_stream {
    const struct cublas_link *link;
    cublasHandle_t handle;
    void *workspace; /* on the GPU */
};

gradweir_status cublas_stream_open(struct cublas_stream *stream, const struct cublas_link *link,
                                   cudaStream_t on, struct engine_reason *reason);
void cublas_stream_close(struct cublas_stream *stream);

/* C = op(A) op(B) + keep C, C [m, n] and k the length that is summed over; what is transposed is
 * stored [k, m] or [n, k]. */
enum cublas_kind { CUBLAS_PLAIN, CUBLAS_SECOND_TRANSPOSED, CUBLAS_FIRST_TRANSPOSED };
struct cublas_product {
    enum cublas_kind kind;
    struct blas_sizes sizes;
    const float *a, *b;
    float *c;
    float keep; /* 0 or 1 */
};
cublasStatus_t cublas_stream_multiply(const struct cublas_stream *stream,
                                      const struct cublas_product *product);

#endif
