/* What a job would take, before anyone pays for it: the memory of each shard, by the function that
 * shards size themselves with, and bytes over the wire. */
#ifndef GRADWEIR_SERVER_PLAN_H
#define GRADWEIR_SERVER_PLAN_H

/* gradweir-server plan --params 7e9 --workers 8 --shards 4 [any setting of the server]. 0, 1 when
 * such a job cannot be, 2 for wrong usage. */
int plan_main(int argc, char **argv);

#endif
