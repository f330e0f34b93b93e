/* A coordinator's core with fake shards and workers, driven by hand. Peers: shards 1 .. N, workers
 * 101, 102, … Shards answer only what a test makes them answer. */
#ifndef GRADWEIR_UNIT_ORDER_BENCH_H
#define GRADWEIR_UNIT_ORDER_BENCH_H

#include "common/model.h"
#include "server/coordinator/order.h"

enum { BENCH_LOG = 512 };

struct bench {
    struct order_options options;
    struct order *order;
    struct order_actions actions;
    int64_t now_ns;
    struct model *model;
    uint8_t layout[256];
    size_t layout_bytes;
    struct record log[BENCH_LOG]; /* the newest, by index modulo its length */
    uint64_t logged;              /* what the shards have been made to say */
    uint32_t shards;
    bool first;     /* the first parameters are in */
    uint32_t epoch; /* in which shards and workers speak; 0 counts as 1 */
};

/* Options: 2 shards, classic, no automatic flush. Change them before bench_start. */
void bench_init(struct bench *bench);

/* A core with all shards enlisted, the layout told by worker 0 of identity "a", and its JOIN
 * logged; the first parameters too, offered by it as sequence 1, when `first`. */
void bench_start(struct bench *bench, bool first);
void bench_end(struct bench *bench);

/* One event each; what came out is in actions. */
void bench_say(struct bench *bench, uint32_t peer, const struct message *message);
void bench_tick(struct bench *bench, int64_t after_ns);
void bench_event(struct bench *bench, uint32_t kind, uint32_t peer);

/* All shards log what there is; one shard does. */
void bench_log(struct bench *bench);
void bench_log_one(struct bench *bench, uint32_t shard);
void bench_stepped(struct bench *bench, uint64_t version);
void bench_freed(struct bench *bench, uint32_t slot, uint64_t generation);

/* Worker i (peer 101 + i) joins as 'a' + i under nonce i + 1, and its JOIN is logged. */
void bench_join(struct bench *bench, uint32_t worker);
void bench_join_as(struct bench *bench, uint32_t peer, char identity, uint8_t nonce);

struct name bench_name(uint32_t worker, uint64_t sequence);
void bench_ask(struct bench *bench, uint32_t worker, uint64_t sequence);

/* The place for a name: asked for when there is none yet. False when none came. */
bool bench_place(struct bench *bench, uint32_t worker, uint64_t sequence,
                 struct message_place *place);
struct message_describe bench_head(struct bench *bench, const struct message_place *place);
void bench_describe(struct bench *bench, const struct message_describe *describe);
struct message_landed bench_body(const struct message_describe *describe);
void bench_landed(struct bench *bench, uint32_t shard, const struct message_landed *landed);

/* A whole gradient: place, head, bodies; judged then, not logged. */
void bench_push(struct bench *bench, uint32_t worker, uint64_t sequence);

/* What the last event gave: the n-th (0 …) message of a kind to a peer (0: to all), or NULL. */
const struct message *bench_sent(const struct bench *bench, uint32_t peer, uint32_t kind,
                                 uint32_t n);
uint32_t bench_count(const struct bench *bench, uint32_t action);

/* Of the newest BENCH_LOG records: the last of a kind, or NULL; how many there are. */
const struct record *bench_record(const struct bench *bench, uint32_t kind);
uint32_t bench_records(const struct bench *bench, uint32_t kind);

#endif
