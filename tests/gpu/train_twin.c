/* gradweir-train whose GPU is this CPU (runtime_host.h), with a network that reads its memory as a
 * card would (ucx_far.h) when it is told so: the trainer's engine, the device of its client, and
 * all between them, against real servers. Linked in the place of learner_group.c. */
#include "client/trainer/learner_remote.h"
#include "tests/gpu/runtime_host.h"
#include "tests/integration/ucx_far.h"

#include <stdlib.h>

/* Before main: everything about it is the trainer's own. */
__attribute__((constructor)) static void begin(void)
{
    ucx_far_reach = runtime_reach;
    ucx_far_knows = getenv("GRADWEIR_TWIN_UCX") != NULL;
}

gradweir_status learner_group_open(const struct train_settings *settings,
                                   const struct network *network,
                                   const struct learner_remote_options *options,
                                   struct learner **learner)
{
    (void)settings, (void)network, (void)options, (void)learner;
    return GRADWEIR_ERR_UNSUPPORTED;
}
