/* What the files of the coordinator's core share: its state, and the few calls between them.
 *
 *   order.c         the step function, the log, deadlines
 *   inbox.c         who may say what
 *   proven.c        what a key allows
 *   roster.c        peers, the layout, leases
 *   members.c       shards: who is there, what a connection has missed
 *   take_over.c     a new coordinator: who is there, SEAL, what they hold
 *   rebuild.c       its state from what they hold
 *   joins.c         who takes part, under which incarnation
 *   ranks.c         groups: several connections that are one worker
 *   swaps.c         rounds in which ranks swap bytes, and meet
 *   describes.c     what they say of their shares of one gradient
 *   places.c        slots: who has room
 *   queue_fit.c     how many there are, by queue_bytes_max
 *   judge.c         what was described and has landed: verdicts
 *   rounds.c        mode = sync: who keeps the others waiting
 *   steps.c         steps, sums, whole versions, flush, drain
 *   reports.c       workers' own numbers
 *   order_status.c  figures and the status page
 *   order_waits.c   what everything waits for
 *
 * A slot's life:
 *
 *   FREE --place--> PLACED --ADMIT--> WINDOW --retired--> CLOSING --FREED from all--> FREE
 *                     `--REFUSE, FIRST, LEAVE, expired------^
 *
 * PLACED with `described` and a mask of who has it whole says how far its gradient is. */
#ifndef GRADWEIR_SERVER_COORDINATOR_ORDER_INTERNAL_H
#define GRADWEIR_SERVER_COORDINATOR_ORDER_INTERNAL_H

#include "common/model.h"
#include "common/page.h"
#include "common/parts.h"
#include "common/random.h"
#include "common/sums.h"
#include "common/wire.h"
#include "server/coordinator/order.h"

enum { KEPT = RING_MAX }; /* newest records, for a shard that comes back a little behind */
enum { HASHES = 8192, OWED_MAX = 2 * SLOTS_MAX, INTERVALS = 32 };
enum { STATUS_BYTES = 2 << 20, PEER_HINTS = 4096 };

enum peer_state { PEER_FREE = 0, PEER_NEW, PEER_JOINING, PEER_WORKER, PEER_SHARD };

struct peer {
    uint32_t number;
    uint32_t state;           /* enum peer_state */
    uint32_t index;           /* of its worker or member */
    struct message_join join; /* JOINING: what waits */
    uint64_t turn;            /* JOINING: smaller came earlier */
    struct message_rank rank; /* of a group; ranks 0: it is none's */
    uint32_t displaced;       /* SHARD, WORKER: NEW again, for another connection came as `index` */
    struct parts *parts;      /* what it holds, once it has told */
};

/* GATHER: who is there, and with what memory? SEAL: all hold a log; their promises and contents are
 * awaited. ACT: all follow this coordinator. */
enum order_phase { PHASE_GATHER = 0, PHASE_SEAL, PHASE_ACT };

struct order_member {
    uint32_t peer; /* 0: not connected */
    bool cold;     /* as it enlisted; its promise and log too */
    uint32_t promise;
    uint64_t index, hash;
    bool promised, sealed; /* SEAL: to us; and its content is here whole */
    struct content_assembler *content;
    bool known; /* was here once: its memory holds our log */
    bool ready;
    char address[ADDRESS_MAX];
    uint8_t instance[NONCE_BYTES]; /* of its process */
    bool stepped_any;
    uint64_t stepped;
    int64_t seen_ns;
    struct message_pulse pulse;
    int64_t pinned_ns; /* since when its next step waits for a parameter slot */
};

struct order_worker {
    uint32_t peer;  /* 0: lost, or gone; of a group: the first rank's, 0 while one is missing */
    uint32_t ranks; /* of a group; 0: it is one process */
    uint32_t rank_peers[RANKS_MAX];
    uint64_t instances[RANKS_MAX]; /* of the ranks' processes */
    uint32_t byes;                 /* a bit per rank that has said BYE */
    int64_t lost_ns;               /* when it was lost */
    int64_t joined_ns;
    uint64_t join_at; /* index of its JOIN record */
    bool told;        /* JOINED was sent to its present peer */
    uint8_t pass[NONCE_BYTES];
    uint64_t asked, granted;          /* sequences up to here */
    uint64_t ticket;                  /* of its waiting; smaller is earlier */
    int64_t asked_ns;                 /* since when it waits */
    uint32_t held;                    /* slots PLACED for it */
    uint16_t places[OUTSTANDING_MAX]; /* the slot of each, by sequence; what it names decides */
    uint32_t numbers_count;           /* what it reported last */
    struct report_number numbers[REPORT_MAX];
};

enum slot_state { SLOT_FREE = 0, SLOT_PLACED, SLOT_WINDOW, SLOT_CLOSING };

struct order_slot {
    uint32_t state; /* enum slot_state */
    uint64_t generation;
    struct name name;
    int64_t since_ns; /* placed, or described */
    bool described;   /* of a group: by one of its ranks */
    uint32_t shares;  /* of a group: a bit per rank that has described its share */
    uint64_t share_digests[RANKS_MAX];
    double share_norms[RANKS_MAX];
    struct message_describe describe;
    uint32_t by;      /* member + 1 that brought it: the receipt goes back that way. 0: nobody */
    uint32_t verdict; /* known before everything has landed; else NONE */
    uint64_t detail;
    uint64_t landed, freed; /* a bit per member */
    uint64_t close_after;
    uint64_t digest; /* of the first that landed */
    bool torn;       /* a checksum failed, or digests differ */
    uint64_t not_finite;
    float magnitude;
    double sum_squares[MEMBERS_MAX];
    uint64_t landed_version;
    uint64_t ready; /* counts completions; 0: not yet */
};

/* sets.c. Slots: free; placed; of these, judged or to be judged. Workers: alive without a place;
 * waiting for one; alive without a connection; connected and not told JOINED. */
enum { SLOT_WORDS = (SLOTS_MAX + 63) / 64, WORKER_WORDS = (WORKERS_MAX + 63) / 64 };
struct order_sets {
    uint64_t free[SLOT_WORDS], placed[SLOT_WORDS], ready[SLOT_WORDS];
    uint64_t placeless[WORKER_WORDS], waiting[WORKER_WORDS], lost[WORKER_WORDS],
        untold[WORKER_WORDS];
    uint32_t free_count, placed_count, placeless_count, waiting_count;
};

struct order_owed {
    uint64_t index;
    struct name name;
    uint32_t by; /* as of its slot */
};

struct order_plants {
    bool admit_partial, early_receipt, no_dedupe, refusal_unlogged, zombie_incarnation;
    bool one_seal, shortest_log, owed_lost, joined_early, generations_anew;
    bool generation_reuse, flush_off, lease_off, retire_early, weight_twice, swap_reopened;
};

struct order {
    struct order_options options;
    struct ledger ledger;
    struct order_actions *actions; /* during a step */
    int64_t now_ns;
    struct random random;
    struct order_plants plants;
    struct order_figures figures;

    enum order_phase phase;
    uint32_t epoch;      /* tried for, or acted in */
    uint32_t epoch_seen; /* highest that any member has promised */
    int64_t seal_ns;     /* SEAL: when it is said (again) */

    struct model *model; /* NULL until the first worker told it */
    uint8_t *layout;
    size_t layout_bytes;
    struct content_assembler *assembler;
    uint32_t layout_peer; /* who was asked for it; 0: nobody */
    uint32_t parts_peer;  /* who was asked for its parts; 0: nobody */
    int64_t parts_ns;     /* since when */
    struct swaps *swaps;

    struct peer *peers;
    uint32_t peers_max;
    uint16_t peer_at[PEER_HINTS]; /* where a number was found last, by number */
    bool joining;                 /* there may be peers that are JOINING */
    struct order_member members[MEMBERS_MAX];
    uint64_t bodies; /* members that hold a piece of every gradient */
    struct order_worker workers[WORKERS_MAX];
    struct order_slot slots[SLOTS_MAX];
    uint32_t slots_count;
    struct order_sets sets;
    uint64_t ready_at[SLOTS_MAX];   /* copies of slots' `ready`: read for many at a time */
    uint64_t logged[MEMBERS_MAX];   /* how far each member's log is */
    uint64_t here;                  /* a bit per member that is connected */
    bool inert;                     /* this event has changed nothing that anything follows from */
    int64_t patience_ns, expire_ns; /* no push, no unused place is overdue before; a lower bound */
    uint64_t generations, tickets, completions;
    uint64_t first_at; /* index of our FIRST record: nobody hears of it before all have logged it */

    uint64_t hashes[HASHES]; /* of records, by index */
    uint64_t hashes_from;    /* the lowest index that is known */
    uint64_t taken_over;     /* index of the log that was taken over; 0: none was */
    uint64_t log_read;       /* rebuild.c: the newest record that was read */
    struct wire_decoder *decoder;
    struct record kept[KEPT];
    int64_t appended_ns[KEPT];
    struct order_owed owed[OWED_MAX];
    uint32_t owed_first, owed_count;
    bool alarm; /* a shard's log differs from ours: nothing is admitted any more */

    bool whole_known;
    uint64_t whole;
    struct sums *sums; /* of the step that waits for them; there when the model is */
    double step_clip;  /* clip_average of the step that waits for its sums */
    int64_t round_ns;  /* sync: since when a round waits for the rest; 0: it does not */
    int64_t last_step_ns, last_admit_ns;
    int64_t intervals[INTERVALS];
    uint64_t intervals_count;
    int64_t interval_median; /* of them, as of a few steps ago */

    bool draining, stopped;
    int64_t drain_ns;
    char *status;
};

/* order.c: actions and the log. */
struct message *order_send(struct order *order, uint32_t peer, uint32_t kind);
struct message *order_send_all(struct order *order, uint32_t kind);
void order_content(struct order *order, uint32_t peer, uint32_t content, const void *bytes,
                   size_t count);
void order_drop(struct order *order, uint32_t peer);
void order_exit(struct order *order, gradweir_status status, const char *text);
void order_say(struct order *order, const char *format, ...) __attribute__((format(printf, 2, 3)));
void order_append(struct order *order, struct record *record);
uint64_t order_watermark(const struct order *order); /* all members have logged up to here */
bool order_members_here(const struct order *order);
int64_t order_later(int64_t time_ns, int64_t wait_ns); /* wait_ns < 0: never, INT64_MAX */
bool order_room(const struct order *order);            /* the slowest is less than `ring` behind */

/* sets.c */
void sets_slot(struct order *order, uint32_t slot);     /* its state or readiness has changed */
void sets_worker(struct order *order, uint32_t worker); /* its state, peer or places have */
void sets_all(struct order *order);                     /* anything has */
/* The first member of a set at or after `from`; count when there is none. */
uint32_t sets_next(const uint64_t *bits, uint32_t from, uint32_t count);

/* inbox.c */
void inbox_message(struct order *order, const struct order_event *event);

/* proven.c: whether a peer whose key says who it is (identity; "" or NULL: no keys) may say this. A
 * JOIN without a name gets the key's. Otherwise it is told why not. */
bool proven(struct order *order, uint32_t peer, const char *identity, struct message *message);

/* tune.c */
void tune_came(struct order *order, uint32_t peer, const struct message_tune_ask *ask);

/* roster.c */
struct peer *roster_find(struct order *order, uint32_t number);
struct peer *roster_take(struct order *order, uint32_t number); /* NULL: full */
void roster_deny(struct order *order, uint32_t peer, int32_t status, const char *text);
void roster_page(struct order *order, struct peer *peer, const struct message_page *page);
void roster_lost(struct order *order, uint32_t number);
/* What a connection said before it broke may come behind what the next one said. Then the dead one
 * has displaced the living, which believes that it is taken for its worker (or shard) yet: when the
 * dead one is lost, the living is asked to say it again. */
void roster_ask_displaced(struct order *order, uint32_t was, uint32_t index);
void roster_leases(struct order *order);
/* Whether we speak a protocol that a peer of these speaks; else fail_reason names all four. */
bool roster_protocol(uint32_t oldest, uint32_t newest);
bool roster_live(const struct order *order, uint32_t worker); /* a worker, not a reader */

/* queue_fit.c: lowers the queue so that a shard's slots fit into queue_bytes_max; ERR_FULL when not
 * even one beyond the window does. */
gradweir_status queue_fit(struct order *order, const struct model *model);

/* reports.c: a worker's numbers for the status page. */
struct page;
void reports_came(struct order *order, uint32_t worker, const struct message_report *report);
void reports_put(struct page *page, const struct order_worker *worker);

/* members.c */
void members_enlist(struct order *order, struct peer *peer, const struct message_enlist *enlist);
void members_ready(struct order *order, struct peer *peer, const struct message_ready *ready);
void members_lost(struct order *order, uint32_t index);
void members_tell(struct order *order, uint32_t index);     /* MEMBER, and the layout if need be */
void members_catch_up(struct order *order, uint32_t index); /* what it has missed */
void members_catch_up_all(struct order *order);
void members_map(struct order *order);    /* the MAP record: a job begins */
void members_bodies(struct order *order); /* who holds a piece of every gradient */

/* take_over.c */
void take_over_enlisted(struct order *order, uint32_t index);
void take_over_sealed(struct order *order, uint32_t index, const struct message *message);
void take_over_page(struct order *order, uint32_t index, const struct message *message);
void take_over_tick(struct order *order);
int64_t take_over_next(const struct order *order); /* INT64_MAX: it acts, or waits for shards */
void take_over_fenced(struct order *order, uint32_t epoch);
bool take_over_ours(const struct order *order); /* the job is ours to end */
/* Ends this coordinator, not the job: a sentence, and ORDER_EXIT. Who may not go on says why. */
void take_over_end(struct order *order, gradweir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* rebuild.c: state from what all members have told. The reason is in fail_reason(). */
gradweir_status rebuild(struct order *order);

/* joins.c */
void joins_came(struct order *order, struct peer *peer, const struct message_join *join);
void joins_retry(struct order *order); /* those that waited for the MAP, or for room in the log */
void joins_tell(struct order *order);  /* JOINED, once all shards have logged the JOIN */
void joins_pass(struct order *order, uint32_t worker); /* a new one, of chance */
void joins_leave(struct order *order, uint32_t worker, uint32_t cause);
bool joins_take(struct order *order, struct peer *peer); /* false: it was turned away */

/* ranks.c */
void ranks_came(struct order *order, struct peer *peer, const struct message_rank *rank);
/* Whether JOIN fits what RANK said before it; if not, it is answered here. */
bool ranks_introduced(struct order *order, struct peer *peer, const struct message_join *join);
void ranks_ask(struct order *order); /* for the parts of the next one that has not told */
void ranks_page(struct order *order, struct peer *peer, const struct message_page *page);
bool ranks_ready(struct order *order, const struct peer *peer); /* all of its group are here */
/* For the status page, a bit per rank: of a group that is not in yet, those that are not here with
 * their parts (one of its peers speaks for all; 0 for the others); of a live worker, those lost. */
uint32_t ranks_absent(const struct order *order, const struct peer *peer);
uint32_t ranks_missing(const struct order *order, uint32_t index);
void ranks_take(struct order *order, struct peer *peer);
bool ranks_over(struct order *order, struct peer *peer); /* and it was told so */
void ranks_lost(struct order *order, struct peer *peer);
void ranks_left(struct order *order, uint32_t worker, uint32_t cause);
bool ranks_bye(struct order *order, const struct peer *peer); /* true: all have said it */
bool ranks_described(const struct order *order, const struct order_slot *slot); /* by all */
void ranks_describe(struct order *order, uint32_t slot, uint32_t rank,
                    const struct message_describe *describe);
bool ranks_own(const struct order *order, const struct peer *peer);
void ranks_forget(struct peer *peer);
void ranks_mirror(struct order *order); /* what its first rank hears, all hear */

/* swaps.c. Rounds are kept in memory that is taken at order_new. */
struct swaps *swaps_new(void);
void swaps_came(struct order *order, uint32_t peer, const struct message_swap *swap);
void swaps_lost(struct order *order, uint32_t peer);
void swaps_tick(struct order *order);
int64_t swaps_next(const struct order *order); /* INT64_MAX: no round is open */
/* The i-th meeting that waits: whose, for which ranks (bits), of how many; false: there is none. */
bool swaps_waiting(const struct order *order, uint32_t i, const char **identity, uint32_t *missing,
                   uint32_t *ranks);

/* places.c */
void places_ask(struct order *order, const struct name *name, bool had_one);
void places_serve(struct order *order);
void places_expire(struct order *order);
bool places_next(struct order *order, uint32_t worker, struct message_receipt *receipt);
void places_close(struct order *order, uint32_t slot, uint64_t after);
void places_freed(struct order *order, uint32_t member, const struct message_freed *freed);
uint32_t places_find(const struct order *order,
                     const struct name *name); /* PLACED; or slots_count */
bool places_waits(const struct order *order, uint32_t worker);
uint32_t places_waiting(const struct order *order);
uint32_t places_used(const struct order *order); /* given and not yet in the window */

/* judge.c */
void judge_describe(struct order *order, uint32_t rank, const struct message_describe *describe);
void judge_known(struct order *order, struct order_slot *slot, uint32_t verdict, uint64_t detail);
void judge_head(struct order *order, struct order_slot *slot);
void judge_described_again(struct order *order, const struct message_describe *describe,
                           uint64_t digest, const struct ledger_receipt *receipt);
void judge_note_ready(struct order *order, struct order_slot *slot);
void judge_wait(struct order *order, const struct order_slot *slot); /* it may become overdue */
void judge_add(struct order_slot *slot, uint32_t member, const struct message_landed *landed);
void judge_landed(struct order *order, uint32_t member, const struct message_landed *landed);
void judge_patience(struct order *order);
void judge_all(struct order *order); /* whatever can have its verdict now */
void judge_refuse(struct order *order, uint32_t slot, uint32_t verdict, uint64_t detail);
bool judge_fine(const struct order *order, uint32_t slot); /* its turn, and it would be admitted */
bool judge_pending(const struct order *order);             /* something has landed and waits */

/* receipts.c. The action that tells it, NULL when there is nobody to tell; owes the newest record's
 * receipt for this slot's gradient; tells those whose record all shards have logged. */
struct order_action *judge_answer(struct order *order, const struct ledger_receipt *receipt,
                                  const struct name *name);
void judge_owe(struct order *order, const struct order_slot *slot);
void judge_receipts(struct order *order);

/* rounds.c: mode = sync */
bool rounds_whole(const struct order *order);
void rounds_watch(struct order *order);
int64_t rounds_next(const struct order *order); /* INT64_MAX: not now */
/* Who is waited for; false: nobody. Since when. */
bool rounds_missing(const struct order *order, bool missing[WORKERS_MAX]);
int64_t rounds_since(const struct order *order, uint32_t worker);

/* steps.c */
void steps_due(struct order *order);
gradweir_status steps_room(struct order *order, const struct model *model); /* for sums */
bool steps_summed(const struct order *order, uint32_t member);
void steps_sums(struct order *order, uint32_t member, const struct message_sums *sums);
void steps_stepped(struct order *order, uint32_t member, uint64_t version);
int64_t steps_flush_at(const struct order *order); /* INT64_MAX: not now */
void steps_flush(struct order *order);
void steps_drain(struct order *order);

/* order_waits.c */
void order_waits(const struct order *order, int64_t now_ns, struct page *page);

#endif
