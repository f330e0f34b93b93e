/* What the files of the shard's core share: struct shard and who does what with it. Everything lies
 * in the arena and refers to its parts by offset.
 *
 *   arena:  struct shard | sessions | pulls | records | pieces | sums | moments | chunk bits |
 *           kept records | layout | slots (gradients) | parameter slots | optimizer states |
 * average */
#ifndef GRADWEIR_SHARD_SHARD_INTERNAL_H
#define GRADWEIR_SHARD_SHARD_INTERNAL_H

#include "server/shard/shard.h"

enum {
    PARAMETER_SLOTS_MAX = 64,
    CHUNKS_MAX = (1 << 28) / SLOTS_MAX, /* of one body: what a token can number */
    REPLIES_AHEAD = 4,                  /* bodies of one pull that may be on their way */
    TILE_ELEMENTS = 131072,             /* one STEP action, unless set: well under 2 ms */
    PULSE_NS = 200000000
};

struct slot {
    uint64_t freed;      /* generations up to here are over */
    uint64_t generation; /* the one that is landing or waiting; 0: none */
    struct name name;
    uint64_t peer; /* who sends it */
    uint64_t digest, basis, received;
    uint32_t in_flight;           /* bodies on their way into it */
    bool bad;                     /* a checksum or the geometry was wrong */
    bool scanning, told;          /* measured; LANDED was said */
    struct message_landed landed; /* what was said */
    bool closing;
    uint64_t close_generation, close_after;
};

struct parameter_slot {
    bool used, writing;
    uint32_t timeline, pins;
    uint64_t version;
};

struct session {
    uint64_t peer; /* 0: free */
    uint32_t number, worker;
    uint64_t incarnation;
};

struct entry {
    bool known;
    uint64_t incarnation;
    uint8_t pass[NONCE_BYTES];
};

/* One PULL: waiting for its version (parameters == UINT32_MAX), or being answered. */
struct pull {
    bool used, abandoned; /* abandoned: its peer is gone, but bodies are still on their way */
    bool exact;
    uint32_t number; /* generation, in tokens */
    uint32_t session, parameters, in_flight;
    uint64_t peer, ticket, version, offset, length, sent;
    int64_t deadline_ns;
};

enum step_phase { STEP_IDLE, STEP_WAIT_SLOT, STEP_AVERAGING, STEP_WAIT_SUMMED, STEP_APPLYING };

struct stepping {
    enum step_phase phase;
    bool job;          /* a tile is with the device */
    uint32_t from, to; /* parameter slots */
    uint64_t next;     /* element: tiles before it are done */
    int64_t began_ns;
    struct record_step record;
    struct arithmetic_plan plan;
};

/* Where things lie, bytes from the arena's start. */
struct offsets {
    uint64_t sessions, pulls, records, pieces, sums, moments, bits, kept, layout, slots, parameters,
        states, average;
};

/* Whom it follows: shard_epoch.c. */
struct promise {
    uint32_t epoch;
    uint8_t instance[NONCE_BYTES];
};

struct shard {
    uint64_t bytes;
    struct shard_options options;
    struct ledger ledger;
    struct promise promise;
    struct offsets at;
    struct model_group groups[MODEL_GROUPS_MAX];
    uint32_t groups_count;
    uint64_t layout_hash, layout_bytes, elements, block, blocks;
    uint64_t moments_count, body_bytes; /* range and MOMENTS tail */
    uint64_t slot_stride, parameter_stride, state_stride;
    uint32_t states_count, pieces_count, chunks, bit_words;

    struct slot slots[SLOTS_MAX];
    struct parameter_slot parameters[PARAMETER_SLOTS_MAX];
    struct entry entries[WORKERS_MAX];

    uint32_t records_max, records_first, records_count; /* ring: logged, to be applied */
    uint64_t applied;
    bool has_first, whole_known;
    uint64_t version, whole; /* newest stepped; newest that all have */
    struct stepping step;
    uint64_t summed_version;
    uint32_t summed_factor;

    int64_t now_ns, pulse_due_ns;
    uint64_t beat, step_ns;
    uint32_t session_numbers, pull_numbers;
    struct shard_figures figures;
    struct {
        bool stale_record, no_fence, pin_ignored, checksum_ignored, whole_early, torn_step,
            moments_twice, order_swapped;
    } plant;
    struct shard_actions *out; /* only while shard_step runs */
};

/* arena.c */
void *at_offset(struct shard *shard, uint64_t offset);
struct session *sessions_of(struct shard *shard);
struct pull *pulls_of(struct shard *shard);
struct record *records_of(struct shard *shard);
struct moments *moments_of(struct shard *shard);
uint64_t slot_offset(const struct shard *shard, uint32_t slot);
uint64_t parameter_offset(const struct shard *shard, uint32_t i);

/* shard.c */
struct shard_action *act(struct shard *shard, enum shard_action_kind kind);
struct message *tell(struct shard *shard, enum message_kind kind); /* a SEND; fill in the rest */
void say(struct shard *shard, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* shard_epoch.c */
void epoch_init(struct shard *shard, const struct shard_options *options,
                const struct model *model);
bool epoch_follows(struct shard *shard, const struct message *message);
void epoch_seal(struct shard *shard, uint32_t epoch, const struct message_seal *seal);
void epoch_logged(struct shard *shard, const struct record *record); /* into the ring of newest */

/* sessions.c */
void session_hello(struct shard *shard, const struct shard_event *event);
struct session *session_find(struct shard *shard, uint32_t number, uint64_t peer);
void session_end(struct shard *shard, struct session *session, bool hang_up);
void session_peer_lost(struct shard *shard, uint64_t peer);
void session_left(struct shard *shard, uint32_t worker, uint64_t incarnation);

/* slots.c */
void slot_chunk(struct shard *shard, const struct shard_event *event);
void slot_landed(struct shard *shard, const struct shard_event *event);
void slot_scanned(struct shard *shard, const struct shard_event *event);
void slot_close(struct shard *shard, const struct message_close *close);
void slots_free_due(struct shard *shard); /* CLOSEs whose record is applied now */
void slots_say_again(struct shard *shard);

/* params.c */
uint32_t
parameters_spare(struct shard *shard); /* UINT32_MAX: none, and late readers were hung up */
uint32_t parameters_find(const struct shard *shard, uint64_t version);
void pull_asked(struct shard *shard, const struct shard_event *event);
void pull_sent(struct shard *shard, const struct shard_event *event);
void pull_peer_lost(struct shard *shard, uint64_t peer);
void pulls_retry(struct shard *shard); /* after a new version, a WHOLE, or time */
int64_t pulls_next(const struct shard *shard);

/* apply.c */
bool apply_room(const struct shard *shard, const struct record *record);
void apply_logged(struct shard *shard, const struct record *record);
void apply_done(struct shard *shard, const struct shard_event *event); /* a tile came back */
void apply_advance(struct shard *shard);
void apply_say_again(struct shard *shard);

/* Tokens of actions: what came back. */
enum token_kind { TOKEN_CHUNK = 1, TOKEN_SCAN, TOKEN_TILE, TOKEN_PULL };
static inline uint64_t token_make(enum token_kind kind, uint64_t high, uint64_t low)
{
    return (uint64_t)kind << 60 | high << 28 | low;
}
static inline enum token_kind token_kind(uint64_t token)
{
    return (enum token_kind)(token >> 60);
}
static inline uint64_t token_high(uint64_t token)
{
    return token >> 28 & UINT32_MAX;
}
static inline uint64_t token_low(uint64_t token)
{
    return token & ((1u << 28) - 1);
}

#endif
