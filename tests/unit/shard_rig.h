/* A shard's core driven by hand, with the coordinator's ledger beside it so that records follow.
 * Peers are numbers of the test's own choosing; a worker's pass is its number + 1 in each byte. */
#ifndef GRADWEIR_UNIT_SHARD_RIG_H
#define GRADWEIR_UNIT_SHARD_RIG_H

#include "server/shard/shard_local.h"

struct rig {
    struct model *model;
    struct law_settings law;
    struct shard_options options;
    struct shard_local *local;
    struct ledger ledger; /* the coordinator's */
    struct record map;    /* its first record */
    int64_t now_ns;
    bool by_hand; /* jobs stay in the outbox: the test says DONE */
};

enum { RIG_ELEMENTS = 1000, RIG_MOMENTS = 2, RIG_JOB = 9, RIG_CHUNK = 1024, RIG_SLOTS = 8 };

/* Classic law with plain SGD of rate 1, one member of one; change options before rig_start. A model
 * of `elements` parameters in one tensor and RIG_MOMENTS moments. */
void rig_init(struct rig *rig, uint64_t elements);

/* Range of member `shard` of `members`, the core, and a MAP record. */
void rig_start(struct rig *rig, uint32_t shard, uint32_t members);
void rig_end(struct rig *rig);

/* One event each; what came out is in local->outbox. */
void rig_event(struct rig *rig, struct shard_event event);
void rig_say(struct rig *rig, const struct message *message);
void rig_tick(struct rig *rig, int64_t after_ns);
void rig_head(struct rig *rig, uint64_t peer, const void *head, uint64_t length);
void rig_done(struct rig *rig, uint64_t token);
void rig_close(struct rig *rig, uint32_t slot, uint64_t generation, uint64_t after);

/* Seals, folds into the rig's ledger and hands to the core; true when the core logged it. */
bool rig_record(struct rig *rig, struct record *record);
void rig_join(struct rig *rig, uint32_t worker, uint32_t role); /* JOIN record and ENTRY */
bool rig_first(struct rig *rig, uint32_t worker, uint32_t slot);
bool rig_admit(struct rig *rig, uint32_t worker, uint32_t slot);
bool rig_step(struct rig *rig, uint32_t rounds, const uint32_t *slots, const float *weights,
              uint32_t n);
bool rig_step_one(struct rig *rig, uint32_t slot); /* weight 1 */
bool rig_summed(struct rig *rig, float factor);

struct head_hello rig_hello_head(uint32_t worker);
/* HELLO of incarnation 1; the session's number, 0 when denied. */
uint32_t rig_hello(struct rig *rig, uint32_t worker, uint64_t peer);

/* A first chunk's head for generation 1, sequence 1, digest 77: change what differs. */
struct head_chunk rig_chunk_head(uint32_t session, uint32_t slot, const void *body,
                                 uint64_t length);
/* Puts a taken body in its place and says LANDED. */
void rig_land(struct rig *rig, const struct shard_action *take, const void *body);
/* All chunks of a body, one after the other. */
void rig_push(struct rig *rig, uint64_t peer, struct head_chunk head, const void *body);

/* What the last event gave: the n-th (0 …) such action, message, or head; or NULL. */
const struct shard_action *rig_action(const struct rig *rig, uint32_t kind, uint32_t n);
const struct message *rig_sent(const struct rig *rig, uint32_t kind, uint32_t n);
const struct shard_action *rig_reply(const struct rig *rig, uint8_t head_kind, uint32_t n);

/* Puts numbers straight into a slot, as if they had landed: element i is scale × (i % 7 - 3). */
void rig_fill(struct rig *rig, uint32_t slot, float scale);

#endif
