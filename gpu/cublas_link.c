/* See cublas_link.h. */
#include "gpu/cublas_link.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* As NVIDIA recommends for sm_90; the older ones need less. */
enum { WORKSPACE_BYTES = 32 << 20 };

#define TEXT_OF(number)  #number
#define NAME_OF(version) "libcublas.so." TEXT_OF(version)
static const char library_name[] = NAME_OF(CUBLAS_VER_MAJOR);

/* The loader's own places first; then where the toolkit was when this was built, and where it
 * usually is. */
static void *find_library(void)
{
    static const char *const folders[] = {"", GRADWEIR_CUDA_FOLDER "/", "/usr/local/cuda/lib64/"};
    void *library = NULL;
    for (size_t i = 0; library == NULL && i < sizeof folders / sizeof folders[0]; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s%s", folders[i], library_name);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

/* ISO C has no way from a pointer to an object to one to a function; POSIX says that they are
 * alike.
 */
static bool take(struct cublas_link *link, const char *name, void *function)
{
    void *symbol = dlsym(link->loaded, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

gradweir_status cublas_link_open(struct cublas_link *link, struct engine_reason *reason)
{
    *link = (struct cublas_link){.loaded = find_library()};
    if (link->loaded == NULL) {
        snprintf(reason->text, sizeof reason->text,
                 "cuda: %s was not found; install cuBLAS (package libcublas-%d-%d, or the CUDA "
                 "toolkit), or put its folder into LD_LIBRARY_PATH",
                 library_name, CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR);
        return GRADWEIR_ERR_UNSUPPORTED;
    }
    if (take(link, "cublasCreate_v2", &link->create) &&
        take(link, "cublasDestroy_v2", &link->destroy) &&
        take(link, "cublasSetStream_v2", &link->set_stream) &&
        take(link, "cublasSetWorkspace_v2", &link->set_workspace) &&
        take(link, "cublasSetMathMode", &link->set_math_mode) &&
        take(link, "cublasSgemm_v2", &link->sgemm) &&
        take(link, "cublasGetStatusString", &link->status_text))
        return GRADWEIR_OK;
    snprintf(reason->text, sizeof reason->text, "cuda: the %s that was found is not whole: %.120s",
             library_name, dlerror());
    cublas_link_close(link);
    return GRADWEIR_ERR_UNSUPPORTED;
}

void cublas_link_close(struct cublas_link *link)
{
    if (link->loaded != NULL)
        (void)dlclose(link->loaded);
    *link = (struct cublas_link){0};
}

/* Float32 throughout: no TF32, whatever the card would like. */
gradweir_status cublas_stream_open(struct cublas_stream *stream, const struct cublas_link *link,
                                   cudaStream_t on, struct engine_reason *reason)
{
    *stream = (struct cublas_stream){.link = link};
    const cudaError_t error = cudaMalloc(&stream->workspace, WORKSPACE_BYTES);
    if (error != cudaSuccess) {
        snprintf(reason->text, sizeof reason->text, "cuda: no room for cuBLAS: %s",
                 cudaGetErrorString(error));
        return GRADWEIR_ERR_NO_MEMORY;
    }
    cublasStatus_t status = link->create(&stream->handle);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = link->set_stream(stream->handle, on);
    if (status == CUBLAS_STATUS_SUCCESS) /* behind set_stream, which takes it away again */
        status = link->set_workspace(stream->handle, stream->workspace, WORKSPACE_BYTES);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = link->set_math_mode(stream->handle, CUBLAS_PEDANTIC_MATH);
    if (status == CUBLAS_STATUS_SUCCESS)
        return GRADWEIR_OK;
    snprintf(reason->text, sizeof reason->text, "cuda: cuBLAS does not start: %s",
             link->status_text(status));
    return status == CUBLAS_STATUS_ALLOC_FAILED ? GRADWEIR_ERR_NO_MEMORY : GRADWEIR_ERR_UNSUPPORTED;
}

void cublas_stream_close(struct cublas_stream *stream)
{
    if (stream->handle != NULL)
        (void)stream->link->destroy(stream->handle);
    (void)cudaFree(stream->workspace);
    *stream = (struct cublas_stream){0};
}

/* cuBLAS counts columns first: a row-major matrix is the transposed of what it sees. So C^T =
 * op(B)^T op(A)^T is asked for, with A and B exchanged. */
cublasStatus_t cublas_stream_multiply(const struct cublas_stream *stream,
                                      const struct cublas_product *p)
{
    const int m = (int)p->sizes.m, n = (int)p->sizes.n, k = (int)p->sizes.k;
    const float one = 1;
    const bool first = p->kind == CUBLAS_FIRST_TRANSPOSED;
    const bool second = p->kind == CUBLAS_SECOND_TRANSPOSED;
    return stream->link->sgemm(stream->handle, second ? CUBLAS_OP_T : CUBLAS_OP_N,
                               first ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k, &one, p->b,
                               second ? k : n, p->a, first ? m : k, &p->keep, p->c, n);
}
