/* The window law: which gradients count, when a step is due, and with what numbers. A pure module:
 * plain data, no clock, no IO, no allocation; the coordinator decides with it, everybody else folds
 * the log with it. Everything that needs pow lives here, and its results travel in the records as
 * bits, so shards and replay compute no weight.
 *
 *   coordinator                                     fold (ledger, on every side)
 *   law_judge(arrival) -> verdict
 *   law_entry(arrival) -> entry -> ADMIT record  -> law_admit(entry);   law_retired() until false
 *   law_due(cause)? law_step(cause) -> STEP      -> law_apply(version, cause); law_retired() until
 * false
 *
 * The rules, in the order of vectors/README.md (family window): not finite, future, stale, else
 * append and drop the oldest beyond W; when S gradients have joined since the last step, a step
 * over the window. A tumbling window (W = S) is emptied by its step, so a flush uses fresh entries
 * only. If recheck leaves no entry there is no step, version stays, and the count of fresh
 * gradients starts again with the next admission. */
#ifndef GRADWEIR_COMMON_LAW_H
#define GRADWEIR_COMMON_LAW_H

#include "common/arithmetic.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAW_WINDOW_MAX ARITHMETIC_ENTRIES_MAX
#define LAW_MAGNITUDE_MAX                                                                          \
    1e18 /* default: its square is finite in float32, so no second moment is poisoned */

enum law_decay { LAW_UNIFORM, LAW_EXP, LAW_POLY }; /* d(τ): 1, β^τ, (1 + τ)^-a */
enum law_at { LAW_AT_STEP, LAW_AT_ARRIVAL }; /* τ anew at every step, or as it was at admission */
enum law_normalise { LAW_MEAN, LAW_COUNT };  /* Σwg / Σw, or Σwg / n */
enum law_damp { LAW_DAMP_OFF, LAW_DAMP_MEAN_WEIGHT }; /* learning rate × Σ s^α d(τ) / Σ s^α */
enum law_schedule {
    LAW_CONSTANT,
    LAW_LINEAR,
    LAW_COSINE
}; /* from learning_rate to learning_rate_end */
enum law_algorithm { LAW_AUTO, LAW_DIRECT, LAW_STACKS }; /* how a window is averaged */
enum law_verdict { LAW_FINE, LAW_NOT_FINITE, LAW_FUTURE, LAW_STALE };
enum law_cause {
    LAW_DUE = 1,
    LAW_FLUSH,
    LAW_DRAIN
}; /* S are there; nothing came for long; the end */

struct law_settings {
    uint32_t window, stride; /* W: 1..LAW_WINDOW_MAX; S: 1.. (S > W throws gradients away unused) */
    int64_t staleness_max;   /* -1: no limit */
    enum law_decay decay;
    double decay_beta;       /* EXP: β, above 0 and up to 1 */
    double decay_power;      /* POLY: a, 0..16 */
    double samples_exponent; /* α: 0..1; samples 0, of old logs, count as 1 */
    enum law_at staleness_at;
    bool recheck; /* leave out what has become too stale inside the window; not with LAW_AT_ARRIVAL
                   */
    enum law_normalise normalise;
    double clip;         /* per gradient, by the client's norm; 0: off */
    double clip_average; /* of the average, in a round; 0: off; not with LAMB */
    enum law_damp damp;
    enum law_algorithm window_algorithm; /* STACKS: not with recheck, nor with POLY at the step,
                                            and DIRECT where W = 2 or W <= S all the same;
                                            AUTO: where it moves less memory */
    uint32_t flush_min;                  /* fresh gradients a flush needs at least; 1.. */
    double magnitude_max;                /* larger elements are NOT_FINITE; up to FLT_MAX / 4 */

    enum arithmetic_algorithm algorithm;
    double learning_rate;
    enum law_schedule schedule;
    double learning_rate_end;
    uint64_t schedule_steps; /* LINEAR and COSINE reach learning_rate_end after so many */
    uint64_t warmup_steps; /* the first steps rise linearly: step t has min(1, t / warmup_steps); 0:
                              off */
    double beta1, beta2;   /* of the optimizer; for bias corrections and for law_explain */
    enum arithmetic_codec gradient_dtype; /* in which gradients travel and wait: codec.h */
};

/* A gradient's facts, when all shards have it. */
struct law_arrival {
    bool finite;
    float largest; /* magnitude */
    uint64_t basis, samples;
    double norm; /* of the whole gradient, as the client measured; only used for clip */
};

/* A gradient of the window, as an ADMIT record tells it. */
struct law_entry {
    uint32_t slot, worker;
    uint64_t generation, sequence;
    uint64_t basis, samples;
    double sample_weight;      /* samples^α, from the record */
    double clip;               /* factor of this gradient, 1 if none; from the record */
    uint64_t admitted_version; /* the version when it was admitted; set by law_entry */
    uint64_t uses;             /* steps that read it; 0 when it retires: UNUSED */
};

/* The schedule of the window by stacks (law_stacks.c). It follows from log positions alone: a
 * position is `next`, the ADMITs so far. Stripes of the model turn at positions a window apart,
 * each stripe at its own, so that every step turns some; at its turn a stripe's gradients are
 * summed from the newest to the oldest, and those partial sums serve until its next turn. A step
 * that is not taken by stacks, or other weights, begin the schedule anew: what no turn has made
 * since then is averaged directly. */
struct law_turn {
    uint64_t position; /* the step at which stripes turned */
    double weight;     /* what its sums are to be multiplied by at the last step */
};
struct law_stacks {
    uint32_t room;    /* the largest window that shards have memory for; 0: none. Since law_init */
    uint32_t turns_n; /* 0: the next step begins the schedule */
    uint64_t stepped, began; /* positions: of the last step; from which turns count */
    double anchor;           /* at the last step, the newest entry's weight without its clip */
    double drift;            /* what rounding has made of the backs' weights: a factor near 1 */
};

/* What a STEP record says beyond the weights. turns: struct step_turn of record.h. */
struct law_step_stacks {
    bool on;
    uint64_t position;
    uint32_t window, fresh, known, turns_n;
    float rescale;
    double ratio, anchor;
    struct arithmetic_age turns[LAW_WINDOW_MAX]; /* newest first */
};

/* One law, plain data: copy it, compare it, send it. */
struct law {
    struct law_settings settings;
    uint64_t version;        /* steps so far, on this timeline */
    uint64_t optimizer_step; /* t of bias corrections and schedule; equals version unless the
                                optimizer was reset */
    uint64_t fresh;          /* admitted since the last step */
    uint64_t unused;         /* retired without ever having been read */
    uint64_t next, first,
        retired; /* positions ever admitted; oldest in the window; oldest not handed out */
    struct law_stacks stacks;
    struct law_entry ring[2 * LAW_WINDOW_MAX]; /* position modulo its length */
    struct law_turn turns[LAW_WINDOW_MAX];     /* stacks.turns_n of them, oldest first */
};

struct law_step_entry {
    uint32_t slot;
    float weight; /* final: what the record carries */
    uint64_t generation;
    uint64_t staleness;  /* τ used */
    double weight_exact; /* before rounding */
};

/* Everything a STEP record says. n = 0: there is nothing to step with, and no record is written. */
struct law_step {
    uint64_t version; /* the version this step makes */
    enum law_cause cause;
    uint64_t optimizer_step;
    double learning_rate; /* with schedule, warm-up and damp; groups multiply it by their scale */
    double damp;          /* the factor within learning_rate; 1 when off */
    double bias1, bias2;  /* 1 - beta^t; a group with its own betas uses arithmetic_bias(beta,
                             optimizer_step) */
    bool needs_sums;      /* clip_average or LAMB: a round of sums before it can be applied */
    uint32_t n;
    struct law_step_entry entries[LAW_WINDOW_MAX]; /* oldest first: log order */
    struct law_step_stacks stacks;
};

/* The named presets. workers >= 1. classic: W = S = 1, no staleness limit. llm: W = S = max(1,
 * workers / 2), limit 8. Both: uniform, α = 1, mean, Adam with 3e-4. */
struct law_settings law_classic(void);
struct law_settings law_llm(uint32_t workers);

/* ERR_INVALID, with a reason that names the setting and its bounds. */
gradweir_status law_settings_check(const struct law_settings *settings);

/* settings are checked before (ASSERT). Version 0, empty window. */
void law_init(struct law *law, const struct law_settings *settings);

/* New settings at a record (TUNE, JOIN, LEAVE): what falls out of a smaller window retires. A step
 * may be due at once: the coordinator asks before the next admission. */
void law_tune(struct law *law, const struct law_settings *settings);

/* What is known from a head alone: FUTURE, STALE or FINE. */
enum law_verdict law_judge_basis(const struct law *law, uint64_t basis);

/* The first rule that applies. With LAW_COUNT an element that its weight could carry past FLT_MAX /
 * 4 is NOT_FINITE too, so that no average overflows. */
enum law_verdict law_judge(const struct law *law, const struct law_arrival *arrival);
const char *law_verdict_name(enum law_verdict verdict);

/* The numbers of an ADMIT record: sample_weight, clip, admitted_version, basis and samples. Slot
 * and names are the caller's to fill. law_weight is the weight the receipt tells: s^α d(τ) clip at
 * admission, before normalising. */
struct law_entry law_entry(const struct law *law, const struct law_arrival *arrival);
double law_weight(const struct law *law, const struct law_entry *entry);

/* Appends. The window drops its oldest beyond W: ask law_retired. */
void law_admit(struct law *law, const struct law_entry *entry);

/* The next entry that has left the window for good, oldest first: its slot may be freed. False when
 * there is none. Ask until false after each admit, apply, tune and clear. */
bool law_retired(struct law *law, struct law_entry *entry);

/* Is there a step for this cause? DUE: S fresh ones. FLUSH: at least flush_min fresh ones. DRAIN:
 * any fresh one. False also when recheck would leave nothing. */
bool law_due(const struct law *law, enum law_cause cause);

/* The numbers of the step that would be taken now. Changes nothing. */
void law_step(const struct law *law, enum law_cause cause, struct law_step *step);

/* The learning rate of the next step, without damp: it depends on no gradient. */
double law_next_rate(const struct law *law);

/* A STEP record has been logged: its version must be the next (ASSERT). Counts uses, starts the
 * count of fresh ones anew, empties a tumbling window. */
void law_apply(struct law *law, const struct law_step *step);

/* The same from what the record says: which entries (by slot) it read; stacks->on: by stacks, then
 * position, fresh, rescale, ratio and anchor matter. */
void law_apply_record(struct law *law, uint64_t version, const uint32_t *slots, uint32_t n,
                      const struct law_step_stacks *stacks);

/* All entries retire and the version is set: first parameters, a rollback, the end of a drain. */
void law_clear(struct law *law, uint64_t version, uint64_t optimizer_step);

uint32_t law_size(const struct law *law); /* entries in the window */
const struct law_entry *law_at(const struct law *law,
                               uint32_t i); /* 0 is the oldest; until the next change */

/* The plan of a step for shards: algorithm, entries and weights, the phase and scale left for the
 * caller. Groups are filled with arithmetic_plan_group. */
void law_plan(const struct law_settings *settings, const struct law_step *step,
              struct arithmetic_plan *plan);

/* law_stacks.c. The largest window for which shards need room for partial sums, under these
 * settings: the window, or 0 when its average is direct. The period of fronts, and how many fronts
 * such room has; elements of a stripe at most, and in recordings from before that was so. */
enum { LAW_FRONT_EVERY = 2, LAW_STRIPE_MAX = 8192, LAW_STRIPE_MAX_BEFORE = 1024 };
uint32_t law_stacks_room(const struct law_settings *settings);
uint32_t law_stacks_fronts(uint32_t room);
/* Arrays of a gradient's size that a step reads and writes for its window by stacks. */
uint64_t law_stacks_passes(const struct law_settings *settings);
bool law_stacks_separable(const struct law_settings *settings);

/* For law.c: the numbers of a step whose entries are filled in; the schedule after a step; its
 * beginning anew. */
void law_stacks_step(const struct law *law, struct law_step *step);
void law_stacks_apply(struct law *law, const struct law_step_stacks *stacks);
void law_stacks_restart(struct law *law);

/* What a shard does with such numbers. */
void law_stacks_plan(const struct law_step_stacks *step, struct arithmetic_stacks *stacks);

/* The sentences a server prints at start: what these settings mean together, for so many workers.
 * Always terminated; cut when size is too small (2 KiB suffices). One sentence per line. Returns
 * the bytes written without the end. */
size_t law_explain(const struct law_settings *settings, uint32_t workers, char *text, size_t size);

#endif
