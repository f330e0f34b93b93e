/* How many threads compute for each shard, from the setting and from what there is. */
#ifndef GRADWEIR_SERVER_HOST_THREADS_H
#define GRADWEIR_SERVER_HOST_THREADS_H

#include "common/log.h"
#include "server/host_settings.h"

/* shard_threads as `asked` (SETTING_WORD: auto) where `shards` share `cores`. */
uint32_t host_threads_of(int64_t asked, uint32_t cores, uint32_t shards);

/* threads = auto: whether the coordinator and so many shards turn on one thread on these cores. */
bool host_threads_share(uint32_t cores, uint32_t shards);

/* Fills in shard_threads, crowded and the size of the shards' tiles, and says so. shards: here. */
void host_threads_choose(struct host_options *options, uint32_t shards, const struct log *log);

#endif
