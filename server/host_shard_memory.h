/* Where a shard's arena lies: in private memory, or, with arena_dir, in a file there that outlives
 * the process (tmpfs: /dev/shm, or an emptyDir of medium Memory). The file is named by job and
 * shard, is locked as long as a process has it, and goes when the job ends in order. */
#ifndef GRADWEIR_SERVER_HOST_SHARD_MEMORY_H
#define GRADWEIR_SERVER_HOST_SHARD_MEMORY_H

#include "server/host_shard_loop.h"

/* At start: goes on in the arena that a killed process of this job and shard left; loop->shard is
 * then set, with member and epoch. Nothing when there is none. An arena that does not fit (another
 * layout, build, setting), is damaged, or that a living process has, is an error that names the
 * file and says what to do: nobody starts cold in silence while one is there. */
gradweir_status shard_memory_find(struct shard_loop *loop);

/* Cold: takes and lays out what member and model want. */
gradweir_status shard_memory_take(struct shard_loop *loop, const struct model *model);

/* ERR_MISMATCH when the coordinator wants another member than the arena is. */
gradweir_status shard_memory_fits(const struct shard_loop *loop,
                                  const struct message_member *member);

/* Unmaps; the file goes when loop->stopped: the coordinator has said that the job is over. */
void shard_memory_close(struct shard_loop *loop);

/* What computes for this shard. Once the arena is there it is pinned for it, so that any device
 * works on memory that stays the host's: shared, redone and checked as ever. */
gradweir_status shard_memory_device(struct shard_loop *loop);
void shard_memory_device_close(struct shard_loop *loop);

#endif
