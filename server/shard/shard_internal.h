/* What the files of the shard's core share: struct shard and who does what with it. Everything lies
 * in the arena and refers to its parts by offset.
 *
 *   arena:  struct shard | sessions | pulls | records | chunk bits | shares | bits ahead | journal
 * | pieces | sums | sums of chunks | trust ratios | moments, twice | kept records | layout |
 * digests | lists | bodies | a tile's back to redo | slots (gradients) | parameter slots |
 * optimizer states | average | back | fronts
 *
 * What lies before the journal is control memory, and each byte of it is one of three kinds:
 * kept (journal_keep before it changes, so that an event happens whole or not at all), of the
 * process (shard_forget sets it back when a killed process' arena is gone on with), or dead until
 * something kept says that it counts (a record behind records_count). Floats have ways of their
 * own: tiles.c, and everything else is written beside what it is made of. README.md, Warm. */
#ifndef GRADWEIR_SHARD_SHARD_INTERNAL_H
#define GRADWEIR_SHARD_SHARD_INTERNAL_H

#include "common/pieces.h"
#include "server/shard/ahead.h"
#include "server/shard/shard.h"

#define ARENA_MAGIC UINT64_C(0x314d524157574721) /* "!GWWARM1" */

enum {
    PARAMETER_SLOTS_MIN = 2, /* the whole version, and one to write */
    PARAMETER_SLOTS_MAX = 64,
    SHARD_FORMAT = 10,    /* of the arena: raise it when the meaning of its bytes changes */
    KILLS_MAX = 5,        /* at one and the same place: then the memory is to blame */
    QUIET_NS = 250000000, /* a dead process' bodies may land so long (measured: 90 ms) */
    CHUNKS_MAX = (1 << 28) / SLOTS_MAX, /* of one body: what a token can number */
    REPLIES_AHEAD = 4,                  /* bodies of one pull that may be on their way */
    BODIES = 8,                         /* places for bodies that are made and not lent */
    BODIES_AHEAD = 2,                   /* of them for one pull at a time */
    BODY_BYTES_MAX = 1 << 20,           /* of one */
    BODY_INDEXES = 1 << 20,             /* in tokens: the pull's index below, the place + 1 above */
    TILE_ELEMENTS = 65536, /* one STEP action, unless set: it stays in the cache (bench_redo) */
    TILE_BLOCKS_EACH = 4,  /* of several threads: the last one is waited for once a tile */
    PULSE_NS = 200000000
};

struct slot {
    uint64_t freed;      /* generations up to here are over */
    uint64_t generation; /* the one that is landing or waiting; 0: none */
    struct name name;
    uint64_t peer; /* who sends it */
    uint64_t digest, basis, received;
    uint64_t measured;     /* bytes of these that were measured when they landed: measure.c */
    uint32_t largest_bits; /* of these */
    bool first;  /* float32 in a job of another codec: it lies in the place of first parameters */
    bool sealed; /* the digest is known */
    uint32_t ranks;               /* that fill it in shares; 0: it comes in chunks */
    uint32_t in_flight;           /* bodies on their way into it */
    bool unquiet;                 /* bodies of a dead process may still land in it */
    bool bad;                     /* a checksum or the geometry was wrong */
    bool scanning, told;          /* measured; LANDED was said */
    struct message_landed landed; /* what was said */
    bool closing;
    uint64_t close_generation, close_after;
};

/* What one rank of a group has sent of one slot's gradient: shares.c. Dead until `seen`. */
struct share {
    uint64_t peer; /* who sends it */
    uint64_t digest;
    uint64_t taken, received; /* bytes: taken in a row from the share's start; landed of these */
    uint64_t end;             /* of the last piece, bytes of the range: offsets rise */
    uint32_t in_flight;
    bool seen, last, failed;
};

struct parameter_slot {
    bool used, writing;
    uint32_t timeline, pins;
    uint64_t version;
};

struct session {
    uint64_t peer; /* 0: free */
    uint32_t number, worker;
    uint32_t rank, ranks; /* of a group; ranks 0: none */
    uint64_t incarnation;
};

struct entry {
    bool known;
    uint32_t epoch; /* in which it was said */
    uint64_t incarnation;
    uint8_t pass[NONCE_BYTES];
};

/* One PULL: its list of pieces is on its way in (landing), it waits for its version (parameters ==
 * UINT32_MAX), or it is being answered, or waits for a place to make a body in (starved). A slot is
 * pinned from the first body of an answer to the last. */
struct pull {
    bool used, abandoned; /* abandoned: its peer is gone, but bodies, or its list, are still on
                             their way */
    bool exact, newer, half, landing, starved;
    uint32_t number; /* generation, in tokens */
    uint32_t session, parameters, in_flight;
    uint32_t worker; /* whose; with its incarnation */
    uint64_t incarnation;
    uint64_t after;         /* sequence whose verdict it waits for; 0: none */
    uint32_t pieces, piece; /* pieces: how many its list has, 0: none; the one that goes now */
    uint32_t made;          /* bodies on their way that lie in places of their own */
    uint32_t crc;           /* of the list */
    uint64_t piece_at;      /* bytes of `piece` that have gone, as they lie */
    uint64_t peer, ticket, version, offset, length, sent; /* sent: bytes as they travel, of total */
    uint64_t total;
    uint64_t portion; /* the longest body of its answer */
    int64_t deadline_ns;
};

enum step_phase {
    STEP_IDLE,
    STEP_WAIT_SLOT,
    STEP_AVERAGING,
    STEP_MOMENTS,
    STEP_WAIT_SUMMED,
    STEP_APPLYING
};

struct stepping {
    enum step_phase phase;
    bool job;          /* a tile is with the device */
    bool ahead;        /* what was made ahead is what this step makes. Of the process */
    uint32_t from, to; /* parameter slots */
    int64_t began_ns;
    struct record_step record;
    struct arithmetic_plan plan;
};

/* Where things lie, bytes from the arena's start. */
struct offsets {
    uint64_t sessions, pulls, records, bits, shares, ahead, journal, pieces, sums, chunk_sums,
        ratios, moments, kept, layout, digests, lists, bodies, redo, slots, parameters, states,
        average, back, fronts;
};

/* Whom it follows: shard_epoch.c. */
struct promise {
    uint32_t epoch;
    uint8_t instance[NONCE_BYTES];
};

/* Whose arena this is, and whether this program can read it. */
struct arena_head {
    uint64_t magic; /* written last */
    uint32_t format, kills;
    uint64_t build, shape; /* hashes: sizes of structs; options that decide what lies where */
    uint64_t kills_index, kills_word; /* the place of the last kill inside of work */
};

struct shard {
    struct arena_head head;
    uint64_t bytes;
    struct shard_options options;
    struct ledger ledger;
    struct promise promise;
    struct offsets at;
    struct model_group groups[MODEL_GROUPS_MAX];
    uint32_t groups_count;
    uint64_t layout_hash, layout_bytes, elements, block, blocks;
    enum arithmetic_codec codec;        /* of gradients */
    uint64_t moments_count, body_bytes; /* range as float32 and MOMENTS tail */
    uint64_t gradient_bytes;            /* range in the codec and MOMENTS tail */
    uint64_t slot_stride, parameter_stride, state_stride;
    uint64_t body_room;               /* bytes of a body that is made and not lent */
    uint64_t tile, tiles, places;     /* elements of one STEP action; in what states lie: tiles.c */
    uint64_t tile_stride, state_ring; /* bytes of a place; of all places of one state */
    uint32_t states_count, pieces_count, chunks, bit_words;
    uint32_t chunk_blocks; /* blocks that a chunk is measured in */
    uint64_t sum_pieces;   /* LAMB: tensors within blocks, each with two sums; else 0 */
    uint32_t ratios_count; /* LAMB: tensors; else 0. Dead until summed_version counts */
    bool average;          /* there is room for one */
    uint32_t stacks;       /* the largest window that partial sums have room for; 0: none */
    uint32_t stripe;       /* elements of the model that turn together */
    struct {
        uint64_t bytes, used;
    } journal;
    uint64_t tile_word; /* tiles.c */
    bool revived;       /* gone on with: what was under way is asked for again at the next event */
    int64_t quiet_until_ns;

    struct slot slots[SLOTS_MAX];
    struct parameter_slot parameters[PARAMETER_SLOTS_MAX];
    struct entry entries[WORKERS_MAX];

    uint32_t records_max, records_first, records_count; /* ring: logged, to be applied */
    uint64_t applied;
    bool has_first, whole_known;
    uint64_t version, whole; /* newest stepped; newest that all have */
    uint64_t turn;           /* in which place of their ring the states' first tile lies */
    uint32_t moments_now;    /* which of the two arrays of moments counts */
    uint32_t keeps_count;    /* KEEPs of the last event, which may not have been carried out */
    struct keep {
        uint64_t index;
        uint32_t slot;
        bool first;
    } keeps[SLOTS_MAX];
    struct stepping step;
    struct ahead ahead;
    uint64_t ahead_numbers;
    uint64_t summed_version;
    uint32_t summed_factor;

    int64_t now_ns, pulse_due_ns;
    uint64_t beat, step_ns;
    uint32_t session_numbers, pull_numbers;
    bool pulls_due;       /* a verdict was logged that a PULL may have waited for. Of the process */
    uint32_t bodies_used; /* bit per place */
    struct shard_figures figures;
    struct {
        bool stale_record, no_fence, pin_ignored, checksum_ignored, whole_early, torn_step,
            moments_twice, order_swapped, redo_off, stacks_redo_off, stacks_shifted, undo_off,
            stale_close, quiet_off, promise_forgotten, generation_ignored, ahead_kept;
    } plant;
    struct shard_actions *out;          /* only while shard_step runs */
    void (*audit)(struct shard *shard); /* tests: looks at the journal before each commit */
};

/* arena.c */
void *at_offset(struct shard *shard, uint64_t offset);
struct session *sessions_of(struct shard *shard);
struct pull *pulls_of(struct shard *shard);
struct record *records_of(struct shard *shard);
struct moments *moments_of(struct shard *shard, uint32_t which);
uint64_t slot_offset(const struct shard *shard, uint32_t slot);
uint64_t first_offset(const struct shard *shard, uint32_t slot); /* of first parameters */
uint64_t parameter_offset(const struct shard *shard, uint32_t i);

void arena_offsets(const struct shard *shard, struct offsets *at, uint64_t *bytes);
uint64_t arena_shape(const struct law_settings *law, const struct shard_options *options);
uint64_t arena_build(void);
uint32_t arena_chunk_blocks(const struct shard *shard);

/* journal.c: what must be the old bytes again when this event is never finished. */
void journal_keep(struct shard *shard, const void *memory, uint64_t bytes);
void journal_commit(struct shard *shard); /* all that was kept so far has happened */
void journal_undo(struct shard *shard);
bool journal_sound(struct shard *shard);
#define KEEP(shard, field) journal_keep(shard, &(field), sizeof(field))

/* tiles.c */
void tile_none(struct shard *shard);           /* before a step, or a phase of it, begins */
uint64_t tile_next(const struct shard *shard); /* element: tiles before it are done */
uint64_t tile_end(const struct shard *shard);  /* of that next tile */
bool tile_busy(const struct shard *shard);
void tile_begin(struct shard *shard);
void tile_done(struct shard *shard);
/* From where the tile's elements of a state count: as they are, or as the step makes them. */
uint64_t tile_state(const struct shard *shard, uint32_t state, uint64_t begin, bool next);
bool tile_stepped(const struct shard *shard, uint64_t begin); /* its states are made already */
void tiles_turn(struct shard *shard); /* the step is over: what it has made is what there is */
void tile_undo(struct shard *shard);  /* what a killed process left half done is to be done again */

/* warm.c: sets back what belonged to a process, and what is dead. Touches control memory only. */
void shard_forget(struct shard *shard);
void shard_revive(struct shard *shard); /* within the first event: asks again for what was asked */

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

/* One more than is told: the place that the next record takes holds none of those that count, so
 * an append that is undone has spoiled nothing. */
static inline uint32_t kept_places(const struct shard *shard)
{
    return shard->options.member.ring ? shard->options.member.ring + 1 : 0;
}

/* sessions.c */
void session_hello(struct shard *shard, const struct shard_event *event);
struct session *session_find(struct shard *shard, uint32_t number, uint64_t peer);
void session_end(struct shard *shard, struct session *session, bool hang_up);
void session_peer_lost(struct shard *shard, uint64_t peer);
void session_left(struct shard *shard, uint32_t worker, uint64_t incarnation);

/* shard.c: what is written of so large a range leaves the caches before it is read again */
bool shard_streams(const struct shard *shard);

/* slots.c */
void slot_chunk(struct shard *shard, const struct shard_event *event);
void slot_landed(struct shard *shard, const struct shard_event *event);
void slot_scanned(struct shard *shard, const struct shard_event *event);
void slot_close(struct shard *shard, const struct message_close *close);
void slots_free_due(struct shard *shard); /* CLOSEs whose record is applied now */
void slots_say_again(struct shard *shard);
void slots_promised(struct shard *shard); /* another coordinator is followed from now on */
void slots_forget(struct shard *shard);
void slots_revive(struct shard *shard);
int64_t slots_next(const struct shard *shard);
void slot_complete(struct shard *shard, uint32_t slot);
bool slot_unquiet(const struct shard *shard,
                  const struct slot *slot); /* a dead process' bodies may still land */
void slot_mark_bad(struct shard *shard, uint32_t slot);
bool slot_has_chunk(struct shard *shard, uint32_t slot, uint64_t chunk);

/* slot_codec.c: of the body that fills a slot */
enum arithmetic_codec slot_codec(const struct shard *shard, uint32_t slot);
uint64_t slot_bytes(const struct shard *shard, uint32_t slot);
uint64_t slot_chunk_bytes(const struct shard *shard, uint32_t slot); /* of all but the last */
uint64_t slot_place(const struct shard *shard, uint32_t slot);       /* where it lies */
bool slots_first(const struct shard *shard); /* first parameters land, or wait */
bool slots_lent(const struct shard *shard);  /* … or may still, where a parameter slot is */
bool slot_says_first(const struct shard *shard, const struct head_chunk *head);

/* measure.c */
void landing_count(struct slot *slot, const struct shard_event *event);
bool landing_measured(const struct shard *shard, uint32_t slot); /* all of it, and finite */
double landing_sum(struct shard *shard, uint32_t slot);          /* of squares, when measured */

/* shares.c */
struct share *shares_of(struct shard *shard, uint32_t slot); /* RANKS_MAX of them */
void share_piece(struct shard *shard, const struct head_chunk *head, uint32_t rank,
                 const struct shard_event *event);
void share_landed(struct shard *shard, const struct shard_event *event);
void shares_open(struct shard *shard, uint32_t slot);
void shares_complete(struct shard *shard, uint32_t slot);
bool shares_move(struct shard *shard, uint32_t slot, uint32_t rank, uint64_t peer);
void shares_forget(struct shard *shard, uint32_t slot, bool torn);

/* params.c */
uint32_t
parameters_spare(struct shard *shard); /* UINT32_MAX: none, and late readers were hung up */
uint32_t parameters_free(const struct shard *shard); /* the same, and nobody is hung up */
uint32_t parameters_find(const struct shard *shard, uint64_t version);
void pull_asked(struct shard *shard, const struct shard_event *event);
void pull_listed(struct shard *shard, const struct shard_event *event); /* its pieces are here */
void pull_sent(struct shard *shard, const struct shard_event *event);
void pull_peer_lost(struct shard *shard, uint64_t peer);
void pulls_retry(struct shard *shard);  /* after a new version, a WHOLE, or time */
void pulls_judged(struct shard *shard); /* a verdict was logged: looked at by the next TICK */
int64_t pulls_next(const struct shard *shard);

/* words.c */
void describe_came(struct shard *shard, const struct shard_event *event);
void receipt_came(struct shard *shard, const struct message_receipt *receipt);

/* bodies.c: what an answer to a PULL is made of. */
struct piece_range pull_range(const struct shard *shard);
struct piece *pull_list(struct shard *shard, uint32_t index); /* PIECES_MAX of them */
bool body_send(struct shard *shard, struct pull *pull,
               uint32_t index); /* false: no place is free */
void body_sent(struct shard *shard, struct pull *pull, uint64_t token);

/* shard_stacks.c */
void stacks_measure(struct shard *shard, const struct model *model,
                    const struct law_settings *law); /* their sizes, before offsets */
uint64_t stacks_arrays(const struct shard *shard);   /* of state_stride bytes: back and fronts */
bool stacks_room(const struct shard *shard, const struct record *record);
void stacks_plan(const struct record_step *record, struct arithmetic_stacks *stacks);
bool stacks_sound(const struct shard *shard, const struct arithmetic_plan *plan);
bool stacks_written(const struct shard *shard); /* in this phase of the step */

/* shard_sums.c */
uint64_t sums_pieces(const struct model *model, const struct model_range *range);
void sums_tell(struct shard *shard);

/* apply.c */
void apply_plan(struct shard *shard, const struct record_step *record,
                struct arithmetic_plan *plan);
bool apply_room(const struct shard *shard, const struct record *record);
void apply_logged(struct shard *shard, const struct record *record);
void apply_done(struct shard *shard, const struct shard_event *event); /* a tile came back */
void apply_advance(struct shard *shard);
void apply_say_again(struct shard *shard);
void apply_revive(struct shard *shard);
void apply_unsummed(struct shard *shard); /* the plan, as it is before SUMMED has come */

/* Tokens of actions: what came back. */
enum token_kind { TOKEN_CHUNK = 1, TOKEN_SCAN, TOKEN_TILE, TOKEN_PULL, TOKEN_SHARE, TOKEN_LIST };
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
