/* The ledger: the fold of the log. Whoever holds the log holds the same ledger: the coordinator
 * (which appends), every shard, the simulator, replay. Plain data: no clock, no IO, no allocation,
 * no pointers; copy it, compare it by bytes.
 *
 * The coordinator fills a record's payload, calls ledger_seal (which gives it epoch, timeline,
 * index and previous) and then ledger_apply; everybody else calls ledger_apply with what came. A
 * record that does not follow is refused and changes nothing. */
#ifndef GRADWEIR_COMMON_LEDGER_H
#define GRADWEIR_COMMON_LEDGER_H

#include "common/law.h"
#include "common/record.h"

#include <stdbool.h>

enum {
    LEDGER_RECEIPTS = 16
}; /* per worker; outstanding_max is at most half of it, so no answer that can still be
      asked for is ever forgotten */
enum { OUTSTANDING_MAX = LEDGER_RECEIPTS / 2 };
enum { LEDGER_FENCED = 4 }; /* nonces to stay out that a worker's number remembers */

/* What an optimizer needs beyond law_settings; decided once, travels in the MAP record's settings
 * too. */
struct optimizer_options {
    double epsilon, dampening, weight_decay;
    bool centered, momentum; /* RMSPROP */
    bool always_adapt;       /* LAMB */
};

struct ledger_receipt {
    uint64_t sequence; /* 0: none */
    uint64_t digest;
    uint64_t index;
    uint64_t version;
    uint64_t staleness;
    uint64_t detail;
    uint32_t verdict;
    float weight;
};

enum worker_state { WORKER_UNKNOWN = 0, WORKER_LIVE, WORKER_LEFT };

struct ledger_worker {
    uint32_t state; /* enum worker_state */
    uint32_t role;
    uint64_t incarnation;
    uint8_t nonce[16];
    char identity[64];
    uint32_t outstanding_max;
    uint8_t fenced[LEDGER_FENCED][16]; /* nonces that were replaced, or whose name another has
                                          had since: they stay out, under every coordinator */
    uint32_t fenced_count;             /* ever; the newest are kept */
    uint64_t last_sequence;            /* newest with a verdict; the next one judged is + 1 */
    uint64_t verdicts[VERDICTS];       /* of its identity */
    struct ledger_receipt receipts[LEDGER_RECEIPTS]; /* by sequence modulo LEDGER_RECEIPTS */
};

struct ledger {
    uint32_t epoch, timeline;
    uint64_t index; /* records so far */
    uint64_t hash;  /* of the last record */
    bool mapped;    /* a MAP record was folded: members, layout and settings are known */
    bool first;     /* the first parameters are there */
    uint64_t first_digest;
    uint32_t members;
    uint64_t layout_hash;
    uint32_t slots;
    uint64_t generation_max; /* highest that any record named */
    uint64_t summed_version; /* of the last SUMMED; its factor */
    uint32_t summed_factor;
    bool stepping; /* a STEP with rounds was folded and its SUMMED was not */
    uint64_t steps_by_cause[4];
    uint64_t save_cut, save_index; /* newest SAVE record; 0: none */
    uint64_t durable;              /* index covered by a whole cut */
    struct law_settings settings;  /* as asked for. law.settings has the stride (and the window
                                      with it, when they are equal) lowered to what live workers
                                      can have in flight, but never below what is fresh */
    uint32_t workers_count;        /* numbers given so far: 0 .. workers_count - 1. One whose worker
                                      left may be given to another identity: incarnations go on, so
                                      no name ever means two, but the window may have entries of
                                      the one before */
    uint64_t departed[VERDICTS];   /* of those whose number another identity has now */
    struct optimizer_options optimizer;
    struct law law; /* settings in force, window, version */
    struct ledger_worker workers[WORKERS_MAX];
};

/* An empty ledger of epoch 1, timeline 1. */
void ledger_init(struct ledger *ledger);

/* Fills the record's chain fields so that it is the next one. */
void ledger_seal(const struct ledger *ledger, struct record *record);

/* Folds the next record. ERR_PROTOCOL, with the reason, when its epoch is lower than ours, or
 * timeline, index or previous hash do not follow, or its content contradicts what is known (a name
 * admitted twice, a sequence that is not last + 1, a slot in the window twice, a version that is
 * not the next …): the ledger is then unchanged. */
gradweir_status ledger_apply(struct ledger *ledger, const struct record *record);

/* The bytes, from the ledger's start, that folding this record and asking for retired entries
 * afterwards may change: at most LEDGER_CHANGES_MAX ranges, and returns how many. For whoever must
 * be able to undo it. */
enum { LEDGER_CHANGES_MAX = 5 };
struct ledger_range {
    uint64_t offset, bytes;
};
uint32_t ledger_changes(const struct ledger *ledger, const struct record *record,
                        struct ledger_range ranges[LEDGER_CHANGES_MAX]);

/* Entries that left the window since the last call, oldest first (law_retired): their slots may be
 * freed once the records so far are applied. */
bool ledger_retired(struct ledger *ledger, struct law_entry *entry);

/* The receipt for this name, or NULL when it has none (yet, or any more: see LEDGER_RECEIPTS). */
const struct ledger_receipt *ledger_receipt(const struct ledger *ledger, const struct name *name);

/* The live worker with this identity, or WORKERS_MAX. */
uint32_t ledger_find(const struct ledger *ledger, const char *identity);

/* Whether this nonce was replaced by another, under whichever number: its own may be another's by
 * now. */
bool ledger_fenced(const struct ledger *ledger, const uint8_t nonce[16]);

/* The window by stacks, from a step's numbers into its record and back: ledger_stacks.c. */
void ledger_stacks_write(const struct law_step_stacks *stacks, struct record_step *step);
void ledger_stacks_read(const struct record_step *step, struct law_step_stacks *stacks);

uint64_t ledger_version(const struct ledger *ledger);

/* Gradients admitted and not yet out of the window. */
uint32_t ledger_window(const struct ledger *ledger);

/* The whole ledger as bytes and back (ledger_bytes.c), for a coordinator that takes over. Writing
 * needs at most LEDGER_BYTES_MAX; ERR_FULL when there is less room and it does not fit. Reading
 * takes exactly `count` bytes and trusts none: ERR_PROTOCOL, `out` is then of no use. */
enum { LEDGER_BYTES_MAX = 2 << 20 };
gradweir_status ledger_write(const struct ledger *ledger, uint8_t *bytes, size_t room,
                             size_t *used);
gradweir_status ledger_read(const uint8_t *bytes, size_t count, struct ledger *out);

/* Law settings as the MAP record's "name = value" lines, and back. Reading is strict: unknown or
 * missing names are ERR_PROTOCOL. Floats are written so that they read back to the same bits
 * ("%a"). */
gradweir_status ledger_settings_write(const struct law_settings *settings,
                                      const struct optimizer_options *optimizer, char *text,
                                      size_t size);
gradweir_status ledger_settings_read(const char *text, struct law_settings *settings,
                                     struct optimizer_options *optimizer);

/* One live setting of a TUNE record, applied to settings; ERR_INVALID names what was wrong.
 * clip_average cannot be turned on: shards took memory for the average at start, or did not. */
gradweir_status ledger_settings_tune(struct law_settings *settings, const char *name,
                                     const char *value);

#endif
