/* One entry of the log: the ordered list of what happened, which the ledger folds.
 *
 * A record names its epoch, timeline and index (1, 2, 3, …) and carries the hash of the record
 * before it; its own hash is hash64 of record_bytes, which also is how a log file stores it.
 * Numbers that decide bits travel as bits. */
#ifndef GRADWEIR_COMMON_RECORD_H
#define GRADWEIR_COMMON_RECORD_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    WORKERS_MAX = 1024,
    MEMBERS_MAX = 64,
    SLOTS_MAX = 1280,
    WINDOW_MAX = 256,
    GROUPS_MAX = 16,
    SETTINGS_TEXT_MAX = 4096,
    RATIOS_MAX = 1024, /* tensors that LAMB can step */
    RECORD_BYTES_MAX = 8192
};

/* A gradient's name. Sequences count 1, 2, 3, … within an incarnation. */
struct name {
    uint32_t worker;
    uint64_t incarnation;
    uint64_t sequence;
};

#define VERDICT_MAP(X)                                                                             \
    X(NONE, 0)                                                                                     \
    X(ADMITTED, 1)                                                                                 \
    X(STALE, 2)                                                                                    \
    X(FUTURE, 3)                                                                                   \
    X(NOT_FINITE, 4)                                                                               \
    X(MISMATCH, 5)                                                                                 \
    X(CANCELLED, 6)                                                                                \
    X(QUEUE_FULL, 7)

enum verdict {
#define VERDICT_ENTRY(name, number) VERDICT_##name = number,
    VERDICT_MAP(VERDICT_ENTRY)
#undef VERDICT_ENTRY
        VERDICTS
};

enum purpose { PURPOSE_GRADIENT = 0, PURPOSE_FIRST = 1 };

#define RECORD_MAP(X)                                                                              \
    X(FIRST, 1)                                                                                    \
    X(JOIN, 2)                                                                                     \
    X(LEAVE, 3)                                                                                    \
    X(ADMIT, 4)                                                                                    \
    X(REFUSE, 5)                                                                                   \
    X(STEP, 6)                                                                                     \
    X(SUMMED, 7)                                                                                   \
    X(SAVE, 8)                                                                                     \
    X(DURABLE, 9)                                                                                  \
    X(TUNE, 10)                                                                                    \
    X(MAP, 11)

enum record_kind {
#define RECORD_ENTRY(name, number) RECORD_##name = number,
    RECORD_MAP(RECORD_ENTRY)
#undef RECORD_ENTRY
};

/* The slot holds a whole model: it becomes version 0 of the timeline. */
struct record_first {
    struct name name;
    uint32_t slot;
    uint64_t generation;
    uint64_t digest;
};

struct record_join {
    uint32_t worker;
    uint64_t incarnation;
    uint32_t role; /* enum role of message.h */
    uint8_t nonce[16];
    char identity[64];
    uint32_t outstanding_max;
};

enum leave_cause { LEAVE_BYE = 1, LEAVE_LEASE = 2, LEAVE_REPLACED = 3, LEAVE_ROUND = 4 };

struct record_leave {
    uint32_t worker;
    uint64_t incarnation;
    uint32_t cause;
};

struct record_admit {
    struct name name;
    uint32_t slot;
    uint64_t generation;
    uint64_t digest;
    uint64_t basis;
    uint64_t landed_version; /* newest version when its last part had landed */
    uint64_t samples;
    double norm;
    double sample_weight; /* samples^alpha */
    double clip;          /* factor of the per-gradient clip, 1 when off */
};

struct record_refuse {
    struct name name;
    uint32_t slot;
    uint64_t generation;
    uint32_t verdict;
    uint64_t basis;
    uint64_t digest;
    uint64_t detail; /* as in the receipt */
};

/* NOTHING: the version gets the parameters and the optimizer's state of the version before. No
 * coordinator sends it: replay without a worker makes it of a step that has nothing left to read.
 */
/* DIRECT: one pass over the entries. STACKS: the same average from partial sums, as
 * common/arithmetic_stacks.h has it; `stacks` says with what numbers. */
enum step_algorithm { STEP_DIRECT = 0, STEP_NOTHING = 1, STEP_STACKS = 2 };

enum step_cause { STEP_DUE = 1, STEP_FLUSH = 2, STEP_DRAIN = 3 };

struct step_entry {
    uint32_t slot;
    uint32_t weight; /* float32 bits: normalised, clip factor and damping included */
};

/* What a step needs for one parameter group, decided by the coordinator. */
struct step_group {
    double learning_rate;
    double bias_correction1; /* 1 - beta1^t */
    double bias_correction2; /* 1 - beta2^t */
};

/* A step of before whose partial sums may still be read. */
struct step_turn {
    uint32_t behind; /* log positions (ADMITs) from that step to this one */
    uint32_t weight; /* float32 bits: its sums, times this, have the weights of this step */
};

/* Zeros unless the step's algorithm is STACKS. */
struct step_stacks {
    uint64_t position;    /* ADMITs so far */
    uint32_t window;      /* the period of the schedule */
    uint32_t fresh;       /* ADMITs since the step before */
    uint32_t known;       /* ADMITs since the schedule began, at most window: no sums are older */
    uint32_t rescale;     /* float32 bits: sums of the step before, times this, … likewise */
    double ratio, anchor; /* for the next step's numbers: law.h */
    uint32_t turns_count;
};

struct record_step {
    uint64_t version; /* the one this step makes */
    uint64_t t;       /* optimizer steps taken, this one included */
    uint32_t cause;
    uint32_t algorithm; /* enum step_algorithm */
    uint32_t rounds;    /* whole-model rounds (SUMMED) this step needs: 0 or 1 */
    uint32_t groups_count;
    struct step_group groups[GROUPS_MAX];
    struct step_stacks stacks;
    uint32_t entries_count;
    struct step_entry entries[WINDOW_MAX]; /* in log order */
    struct step_turn turns[WINDOW_MAX];    /* stacks.turns_count of them, newest first */
};

struct record_summed {
    uint64_t version;
    uint32_t round;
    double norm; /* of the average; 0 with LAMB */
    uint32_t
        factor; /* float32 bits: what the average is multiplied by; 0: the step changes nothing */
    uint32_t ratios_count;       /* LAMB: parameter tensors; else 0 */
    uint32_t ratios[RATIOS_MAX]; /* float32 bits: trust ratios of the tensors by offset */
};

struct record_save {
    uint64_t cut;
};

/* A live setting changes here, at this place in the order. */
struct record_tune {
    char setting[64];
    char value[64];
};

/* Who are the members, what is the model, and every setting that decides a number, as "name =
 * value" lines. */
struct record_map {
    uint32_t members;
    uint64_t firsts[MEMBERS_MAX];
    uint64_t counts[MEMBERS_MAX];
    uint64_t layout_hash;
    uint32_t slots;
    uint32_t groups_count;
    char settings[SETTINGS_TEXT_MAX];
};

struct record {
    uint32_t kind;
    uint32_t epoch;
    uint32_t timeline;
    uint64_t index;
    uint64_t previous; /* hash of the record before; 0 for the first */
    union {
        struct record_first first;
        struct record_join join;
        struct record_leave leave;
        struct record_admit admit;
        struct record_refuse refuse;
        struct record_step step;
        struct record_summed summed;
        struct record_save save;
        struct record_save durable;
        struct record_tune tune;
        struct record_map map;
    };
};

const char *record_name(uint32_t kind);
const char *verdict_name(uint32_t verdict);

/* Bytes of a record that count, from its start: of its union the kind's own part, of a STEP no more
 * than its entries and turns. record_copy leaves what lies behind them in `to` as it is. */
size_t record_used(const struct record *record);
void record_copy(struct record *to, const struct record *from);

/* The record as canonical bytes (MessagePack, the same encoder as the wire). Writes at most
 * RECORD_BYTES_MAX. */
size_t record_encode(const struct record *record, uint8_t *bytes);

/* Reads what record_encode wrote. Input is hostile: ERR_PROTOCOL says what was wrong; out only on
 * success. */
gradweir_status record_decode(const uint8_t *bytes, size_t count, struct record *out);

/* hash64 over record_encode's bytes. */
uint64_t record_hash(const struct record *record);

#endif
