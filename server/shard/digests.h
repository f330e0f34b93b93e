/* Digests of the arena's floats, records and gradients: what digests.c keeps and digests_check.c
 * looks at. The second part is for everybody else. */
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

/* digests.c: kept while an arena outlives its process, so that it can be believed. Whoever has
 * written what they are of calls them, before it counts. digests_step and digests_average may be
 * called for pieces of a tile, by several threads at once: begin is a block border, end is one or
 * the shard's end. */
uint64_t digests_bytes(const struct shard *shard);
void digests_init(struct shard *shard);
void digests_step(struct shard *shard, uint64_t begin, uint64_t end);
void digests_ahead(struct shard *shard, uint64_t begin, uint64_t end); /* of what is made ahead */
void digests_average(struct shard *shard, uint64_t begin, uint64_t end);
void digests_parameters(struct shard *shard, uint32_t slot); /* all of a parameter slot's floats */
void digests_tail(struct shard *shard, uint32_t slot);       /* and its MOMENTS */
void digests_moments(struct shard *shard, uint32_t which);
void digests_chunk(struct shard *shard, uint32_t slot, uint64_t chunk, uint32_t crc);
void digests_record(struct shard *shard, const struct record *kept);
void digests_redo(struct shard *shard, uint64_t begin, uint64_t end, bool back); /* of states */

/* digests_check.c: ERR_CORRUPT names what is not as it was left. */
gradweir_status digests_check(struct shard *shard);

#endif
