/* The transport backend within one process, for tests: who can reach whom is a hub, and failures
 * are counted down.
 *
 * Several transports may share a hub, each on its own thread; driven from one thread everything is
 * deterministic. Bodies move a step at a time in poll(), so a connection can break in the middle of
 * one. */
#ifndef GRADWEIR_COMMON_TRANSPORT_MEMORY_H
#define GRADWEIR_COMMON_TRANSPORT_MEMORY_H

#include "common/transport.h"

/* step_bytes: how much of a body one poll() moves; 0 = all of it. Close all its transports before
 * freeing the hub. */
gradweir_status transport_memory_hub_new(uint64_t step_bytes, struct transport_memory_hub **hub);
void transport_memory_hub_free(struct transport_memory_hub *hub);

/* Breaks the connection that the `countdown`-th move from now uses (a move is one head arriving or
 * one step of a body); 1 is the next one, 0 forgets it. Both ends then get LOST (ERR_LOST). */
void transport_memory_break_after(struct transport_memory_hub *hub, uint64_t countdown);

/* Makes the hub's transports know CUDA memory, of a device that is none: where the processor can
 * read the bytes at a GPU's address. NULL: they know the host's alone. */
typedef const void *(*transport_memory_reach)(const void *pointer, size_t bytes);
void transport_memory_know_cuda(struct transport_memory_hub *hub, transport_memory_reach reach);

extern const struct transport_functions transport_memory_functions;

#endif
