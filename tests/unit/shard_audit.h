/* Checks the journal of a shard's core: before each commit, undoing must give the control memory of
 * the commit before, byte for byte, but for what a resume forgets anyway. So whoever changes
 * control memory without saving it first fails every test that does so. A few shards at a time. */
#ifndef GRADWEIR_UNIT_SHARD_AUDIT_H
#define GRADWEIR_UNIT_SHARD_AUDIT_H

#include "server/shard/shard.h"

void shard_audit_begin(struct shard *shard);
void shard_audit_end(struct shard *shard);

#endif
