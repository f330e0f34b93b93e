/* A shard's process that dies in the middle of an event: just before something of it counts. */
#ifndef GRADWEIR_SIM_SIM_CRASH_H
#define GRADWEIR_SIM_SIM_CRASH_H

#include "server/shard/shard.h"

/* A step of the core that dies at its commit number `commits`, from 0, should it come so far. False
 * when it did: nothing of what it gives counts. */
bool crash_step(struct shard *shard, const struct shard_event *event, uint32_t commits,
                struct shard_actions *actions);

#endif
