/* Digests of the arena's floats, records and gradients: what digests.c keeps and digests_check.c
 * looks at. Everybody else calls what shard_internal.h names. */
#ifndef GRADWEIR_SERVER_SHARD_DIGESTS_H
#define GRADWEIR_SERVER_SHARD_DIGESTS_H

#include "server/shard/shard_internal.h"

/* False: this arena was made without, or does not outlive its process. */
bool digests_kept_up(const struct shard *shard);

/* Of one block of the array of floats at an offset of the arena, as they are now. */
uint64_t digests_of_block(struct shard *shard, uint64_t floats, uint64_t block);
uint64_t digests_of_tail(struct shard *shard, uint32_t parameter_slot);

/* As they were kept: one a block; behind a parameter slot's one more, of the MOMENTS tail. */
uint64_t *digests_of_state(struct shard *shard, uint32_t state);
uint64_t *digests_of_parameters(struct shard *shard, uint32_t slot);
uint64_t *digests_of_average(struct shard *shard);
uint32_t *digests_chunks(struct shard *shard, uint32_t slot); /* CRC32C of each, as it landed */

/* Whether what is there now is what was there then. */
bool digests_fixed_same(struct shard *shard);
bool digests_moments_same(struct shard *shard); /* the array of the two that counts */
bool digests_record_same(struct shard *shard, const struct record *kept);

#endif
