/* The parent that starts dead processes again. It holds no floats and decides nothing about the
 * job: what makes a restart harmless is the arena (shard.h, Warm) and the epoch.
 *
 *     gradweir-server --shards 2 --supervise on      this parent, a coordinator, two shards
 *
 * With coordinator, shard or shards_elsewhere given there is one child: this very server. */
#ifndef GRADWEIR_SERVER_SUPERVISE_H
#define GRADWEIR_SERVER_SUPERVISE_H

#include "common/settings.h"

/* Runs until the job has ended in order, or a child cannot go on: it ended by itself with a
 * failure (its settings are wrong, the coordinator does not want it: it has said why), or it
 * crashed five times within 60 s. Then the others are ended too; arenas are kept. Children that
 * are killed are started again at once; those that die young or crash wait longer each time.
 *
 * SIGTERM, SIGINT and SIGHUP (unless it is ignored) go to the coordinator, which drains the job;
 * the second one goes to all. A parent that is killed takes its children along.
 *
 * arguments: as main has them. *unrecorded: as host_run gives it, for any of them. */
gradweir_status supervise_run(const struct settings *settings, int count, char **arguments,
                              bool *unrecorded);

#endif
