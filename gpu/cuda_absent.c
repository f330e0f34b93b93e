/* The sentences for a machine without driver or GPU. */
#include "gpu/cuda_absent.h"

#include <stdio.h>

void cuda_absent(cudaError_t error, char *text, size_t size)
{
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (error == cudaErrorInsufficientDriver && driver == 0)
        snprintf(text, size,
                 "cuda: this machine has no NVIDIA driver (libcuda); install it, or use cpu");
    else if (error == cudaErrorInsufficientDriver)
        snprintf(text, size,
                 "cuda: the driver knows CUDA %d.%d, this program was built for %d.%d; install a "
                 "newer driver, or build with an older toolkit",
                 driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else if (error == cudaErrorNoDevice)
        snprintf(text, size,
                 "cuda: this machine has no NVIDIA GPU, or CUDA_VISIBLE_DEVICES hides it; use cpu");
    else
        snprintf(text, size, "cuda: %s", cudaGetErrorString(error));
}
