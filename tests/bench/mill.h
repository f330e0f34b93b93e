/* The deciding cores of a job in one thread, with nobody between them: a coordinator's, a shard's,
 * and one simulated worker whose gradients already lie in their slots. What a step costs is the
 * time within the shard's core and its arithmetic; what the coordinator decides is its own real
 * decision, so that weights, windows and their schedule are those of a real job. */
#ifndef GRADWEIR_BENCH_MILL_H
#define GRADWEIR_BENCH_MILL_H

#include "server/host_settings.h"

struct mill;

/* A model of one tensor of `elements`, all of it on one shard, with first parameters. threads: of
 * the shard's arithmetic. */
gradweir_status mill_open(const struct host_options *host, uint64_t elements, uint32_t threads,
                          struct mill **mill);
void mill_close(struct mill *mill);

struct mill_pushed {
    bool stepped;
    uint64_t shard_ns; /* within the shard, for this gradient and the step that it made due */
};

/* One more gradient: admitted, logged, and stepped when a step is due. */
gradweir_status mill_push(struct mill *mill, struct mill_pushed *pushed);

/* Memory that the shard was given. */
uint64_t mill_bytes(const struct mill *mill);

#endif
