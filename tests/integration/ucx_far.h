/* UCX with a device's memory: ucx_far.c. */
#ifndef GRADWEIR_INTEGRATION_UCX_FAR_H
#define GRADWEIR_INTEGRATION_UCX_FAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a card reaches bytes of the device; NULL: they are not its. To be set before. */
extern const void *(*ucx_far_reach)(const void *pointer, size_t bytes);

extern bool ucx_far_knows;    /* it says that it knows CUDA memory; false until it is set */
extern uint64_t ucx_far_sent; /* bytes that left from far memory */

#endif
