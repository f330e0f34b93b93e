/* The kernels and cuBLAS on the runtime that is the CPU: each call is put on its stream, and done
 * when its turn comes, by the twins. The linker hands the engine's calls to these (--wrap). */
#include "client/trainer/engine.h"
#include "gpu/cublas_link.h"
#include "gpu/kernels_engine.h"
#include "gpu/kernels_environment.h"
#include "gpu/kernels_learn.h"
#include "tests/gpu/runtime_host_queued.h"

#include <stdlib.h>
#include <string.h>

QUEUED_WORK(gpu_gather, struct gpu_gather_work)
QUEUED_WORK(gpu_look_back, struct gpu_look_back_work)
QUEUED_WORK(gpu_link_values, struct gpu_link_work)
QUEUED_WORK(gpu_column_sums, struct gpu_columns_work)
QUEUED_WORK(gpu_statistics, struct gpu_statistics_work)
QUEUED_WORK(gpu_tanh_backward, struct gpu_tanh_work)
QUEUED_WORK(gpu_act, struct gpu_act_work)

QUEUED(gpu_bias_tanh,
       (gpu_stream stream, uint64_t rows, uint64_t cols, const float *bias, float *y),
       WITH(uint64_t rows, cols; const float *bias; float *y;), WITH(rows, cols, bias, y),
       (NULL, a->rows, a->cols, a->bias, a->y))
QUEUED(gpu_add_bias, (gpu_stream stream, uint64_t rows, uint64_t cols, const float *bias, float *y),
       WITH(uint64_t rows, cols; const float *bias; float *y;), WITH(rows, cols, bias, y),
       (NULL, a->rows, a->cols, a->bias, a->y))
QUEUED(gpu_gae,
       (gpu_stream stream, const struct advantage_input *input, float gamma, float lambda,
        struct element_estimates to),
       WITH(struct advantage_input input; float gamma, lambda; struct element_estimates to;),
       WITH(*input, gamma, lambda, to), (NULL, &a->input, a->gamma, a->lambda, a->to))
QUEUED(gpu_vtrace,
       (gpu_stream stream, const struct advantage_input *input,
        const struct advantage_vtrace_settings *settings, const float *log_ratios,
        struct element_estimates to),
       WITH(struct advantage_input input; struct advantage_vtrace_settings settings;
            const float *log_ratios; struct element_estimates to;),
       WITH(*input, *settings, log_ratios, to),
       (NULL, &a->input, &a->settings, a->log_ratios, a->to))
QUEUED(gpu_loss_centre,
       (gpu_stream stream, const struct loss_settings *settings, const struct statistics *batch,
        struct loss_centre *to),
       WITH(struct loss_settings settings; const struct statistics *batch;
            struct loss_centre * to;),
       WITH(*settings, batch, to), (NULL, &a->settings, a->batch, a->to))
QUEUED(gpu_loss,
       (gpu_stream stream, const struct loss_settings *settings, const struct gpu_loss_work *work),
       WITH(struct loss_settings settings; struct gpu_loss_work work;), WITH(*settings, *work),
       (NULL, &a->settings, &a->work))
QUEUED(gpu_environments_reset,
       (gpu_stream stream, const struct gpu_environments *environments, float *observations),
       WITH(struct gpu_environments environments; float *observations;),
       WITH(*environments, observations), (NULL, &a->environments, a->observations))
QUEUED(gpu_environments_step,
       (gpu_stream stream, const struct gpu_environments *environments, const float *actions,
        const struct gpu_outcome *outcome),
       WITH(struct gpu_environments environments; const float *actions;
            struct gpu_outcome outcome;),
       WITH(*environments, actions, *outcome), (NULL, &a->environments, a->actions, &a->outcome))

/* cuBLAS, columns first as it counts. */
struct cublasContext {
    cudaStream_t stream;
    bool has_workspace;
};

enum { SUMS_MAX = 4096 };

struct product {
    cublasOperation_t a, b;
    int m, n, k, lda, ldb, ldc;
    float alpha, beta;
    const float *A, *B;
    float *C;
};

/* One column of C: op(A) times a column of op(B), in which b is an element. */
static void add_column(const struct product *p, int col, float *sums)
{
    for (int i = 0; i < p->k; i++) {
        const float b = p->B[p->b == CUBLAS_OP_N ? col * p->ldb + i : i * p->ldb + col];
        const float *a = p->A + (p->a == CUBLAS_OP_N ? i * p->lda : i);
        if (p->a == CUBLAS_OP_N)
            for (int row = 0; row < p->m; row++)
                sums[row] += a[row] * b;
        else
            for (int row = 0; row < p->m; row++)
                sums[row] += a[row * p->lda] * b;
    }
}

static void run_product(const void *arguments)
{
    const struct product *p = arguments;
    float sums[SUMS_MAX];
    for (int col = 0; col < p->n; col++) {
        float *to = &p->C[(size_t)col * (size_t)p->ldc];
        memset(sums, 0, sizeof sums);
        add_column(p, col, sums);
        for (int row = 0; row < p->m; row++)
            to[row] = p->alpha * sums[row] + (p->beta == 0 ? 0 : p->beta * to[row]);
    }
}

static cublasStatus_t sgemm(cublasHandle_t handle, cublasOperation_t a, cublasOperation_t b, int m,
                            int n, int k, const float *alpha, const float *A, int lda,
                            const float *B, int ldb, const float *beta, float *C, int ldc)
{
    const struct product product = {a, b, m, n, k, lda, ldb, ldc, *alpha, *beta, A, B, C};
    const bool fits =
        lda >= (a == CUBLAS_OP_N ? m : k) && ldb >= (b == CUBLAS_OP_N ? k : n) && ldc >= m;
    if (!fits || m > SUMS_MAX || !handle->has_workspace || !runtime_on_gpu(A, sizeof *A) ||
        !runtime_on_gpu(B, sizeof *B) || !runtime_on_gpu(C, sizeof *C))
        return CUBLAS_STATUS_INVALID_VALUE;
    return runtime_queue(handle->stream, run_product, &product, sizeof product) == 0
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

static cublasStatus_t create(cublasHandle_t *handle)
{
    *handle = calloc(1, sizeof **handle);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t destroy(cublasHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set_stream(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    handle->has_workspace = false;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set_workspace(cublasHandle_t handle, void *workspace, size_t bytes)
{
    handle->has_workspace = runtime_on_gpu(workspace, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set_math_mode(cublasHandle_t handle, cublasMath_t mode)
{
    (void)handle;
    return mode == CUBLAS_PEDANTIC_MATH ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static const char *status_text(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "an error of the host's cuBLAS";
}

gradweir_status __wrap_cublas_link_open(struct cublas_link *link, struct engine_reason *reason);
gradweir_status __wrap_cublas_link_open(struct cublas_link *link, struct engine_reason *reason)
{
    (void)reason;
    *link = (struct cublas_link){.create = create,
                                 .destroy = destroy,
                                 .set_stream = set_stream,
                                 .set_workspace = set_workspace,
                                 .set_math_mode = set_math_mode,
                                 .sgemm = sgemm,
                                 .status_text = status_text};
    return GRADWEIR_OK;
}
