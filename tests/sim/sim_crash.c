/* Kills a core by leaving it: its journal then holds what the next process has to undo. */
#include "tests/sim/sim_crash.h"

#include "server/shard/shard_internal.h"

#include <setjmp.h>

static sigjmp_buf leave;
static uint32_t rest;

static void before_commit(struct shard *shard)
{
    if (shard->journal.used > 0 && rest-- == 0)
        siglongjmp(leave, 1);
}

bool crash_step(struct shard *shard, const struct shard_event *event, uint32_t commits,
                struct shard_actions *actions)
{
    rest = commits;
    shard->audit = before_commit;
    if (sigsetjmp(leave, 0) != 0)
        return false;
    shard_step(shard, event, actions);
    shard->audit = NULL;
    return true;
}
