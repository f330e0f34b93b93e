/* A shard's floats in the memory of the GPU that computes for it (device_memory = resident): jobs
 * read and write there, so that what a step reads does not cross the bus. The arena stays whole,
 * and stays the truth:
 *
 *     gradients         land in the arena; what has landed is copied to the GPU, once
 *     parameters        are made on the GPU, and echoed into the arena's slot with each tile:
 * pulls, digests and recordings know nothing of it states, average   live on the GPU; where the
 * arena outlives the process, they are echoed too, before a tile counts as done. So a killed shard
 * goes on as ever partial sums      of a window by stacks: on the GPU; where the arena outlives the
 * process, in the arena, pinned and mapped, because what is written of them is scattered
 *
 * Copies and jobs go through one queue of the device, which keeps their order: a step never reads
 * what has not been brought. First parameters are brought when the first step is given, and all
 * that is in the arena when a killed process' shard is gone on with. */
#ifndef GRADWEIR_SERVER_HOST_SHARD_MIRROR_H
#define GRADWEIR_SERVER_HOST_SHARD_MIRROR_H

#include "server/host_shard_loop.h"

enum { MIRROR_TAG = 1 }; /* of the device's jobs that are copies to the mirror; 0: the core's */

/* Once the arena is there, and pinned. goes_on: something is in it. Without a mirror, and OK, where
 * the device works in the host's memory, or there is no room and the setting allows that; says
 * which. ERR_NO_MEMORY where it does not. */
gradweir_status shard_mirror_open(struct shard_loop *loop, bool goes_on);
void shard_mirror_close(struct shard_loop *loop);

/* A body has landed there, in the arena. */
void shard_mirror_landed(struct shard_loop *loop, uint64_t offset, uint64_t length);

/* Gives copies of what has landed; at_once: all of it, else when none is under way. ERR_FULL: the
 * device takes no more now; ERR_LOST. OK when there is no mirror. */
gradweir_status shard_mirror_bring(struct shard_loop *loop, bool at_once);

/* For a job that is about to be given: brings what it reads, tells where echoes go, and turns the
 * addresses in loop->work to those of the mirror. Errors as above. */
gradweir_status shard_mirror_job(struct shard_loop *loop, const struct shard_loop_job *job,
                                 struct device_echo *echo);

/* The device's address of what lies at an address of the arena. */
void *shard_mirror_at(const struct shard_loop *loop, const void *address);

#endif
