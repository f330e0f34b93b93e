/* The coordinator's core: who takes part, which gradient counts, in what order, with what weight.
 * It never touches a float of the model. Events in, actions out; no IO, no clock, no threads, no
 * allocation after order_new.
 *
 *   order.c, inbox.c    the step function, the log; who may say what
 *   roster.c, joins.c   peers, shards, leases; who takes part
 *   places.c            slots and their generations
 *   judge.c, steps.c    verdicts, records, receipts; steps, flush, drain
 *
 *   take_over.c         a new coordinator: who is there, SEAL, what they hold
 *   rebuild.c           its state from what they hold
 *
 * A fresh core does not know whether a job is running. It waits until all shards have enlisted.
 * None holds a log: a new job begins. All do: it seals the next epoch at all of them, takes the
 * longest of their logs, and goes on with that job; of workers that JOIN meanwhile it takes none.
 * Some do and some do not: it refuses those that do not, by name, and waits. Nothing is appended
 * and no worker hears anything before all shards have promised.
 *
 * A core that is fenced (a shard follows a higher epoch) gives ORDER_EXIT with ERR_FENCED; one
 * whose job has lost a shard's memory tells everybody and gives ORDER_EXIT with ERR_LOST.
 *
 * Peers are numbers that the shell gives to control connections; 0 is nobody. Actions are carried
 * out in the order given. */
#ifndef GRADWEIR_SERVER_COORDINATOR_ORDER_H
#define GRADWEIR_SERVER_COORDINATOR_ORDER_H

#include "common/law.h"
#include "common/ledger.h"
#include "common/message.h"
#include "common/model.h"

#include <stdbool.h>

struct order; /* opaque: order.c */

struct order_options {
    uint64_t job;
    uint64_t seed; /* for passes and pauses; from random_entropy in a real process */
    uint8_t instance[NONCE_BYTES]; /* of this process, likewise: two may try for one epoch */
    uint32_t shards;               /* members of the first MAP */
    uint32_t workers_max;
    uint32_t numbers_max;     /* after so many worker numbers, those of workers that left are given
                                 again before new ones; 0: WORKERS_MAX */
    uint32_t queue;           /* slots beyond the window */
    uint64_t queue_bytes_max; /* of a shard's slots; 0: no bound. The queue is lowered to fit */
    uint32_t window_max;      /* slots for the window; at least law.window */
    bool overflow_reject; /* an ASK without room is answered QUEUE_FULL; else it waits its turn */
    bool sync;            /* mode = sync: W = S = N, admitted in worker order; queue and
                             window_max must have room for workers_max */
    uint32_t outstanding_max;
    uint32_t parameter_slots;
    uint64_t chunk_bytes;
    int64_t flush_after_ns;    /* 0: 3 x median time between steps, 50 ms .. 60 s; -1: never */
    int64_t place_patience_ns; /* an unused place goes back after so long while others wait */
    int64_t push_patience_ns;  /* described but not landed everywhere: CANCELLED after so long */
    int64_t lease_ns;          /* how long a lost connection is believed to come back */
    int64_t round_patience_ns; /* sync: who keeps a round waiting so long is taken out; 0: never */
    int64_t shard_patience_ns; /* silence of a shard after which status names it */
    uint32_t ring; /* newest records that a shard keeps, 32 .. RING_MAX: ADMIT waits while
                      the slowest is half of it behind, so whatever anybody lacks is
                      still held by the one that has most */
    struct law_settings law;
    struct optimizer_options optimizer;
};

enum order_event_kind {
    ORDER_MESSAGE = 1, /* from peer */
    ORDER_LOST,        /* the connection of peer is gone */
    ORDER_DRAIN,       /* stop taking, finish what has landed, say STOP to all, then EXIT */
    ORDER_TICK         /* time has passed; due by order_next at the latest */
};

struct order_event {
    enum order_event_kind kind;
    int64_t now_ns; /* monotonic; never less than the last event's */
    uint32_t peer;
    const char *identity; /* whose key the connection has proved; "" or NULL: keys are not in use,
                             or the peer is within the process */
    const struct message *message; /* borrowed for the call; nothing in it is trusted */
};

enum order_action_kind {
    ORDER_SEND = 1, /* message to peer */
    ORDER_SEND_ALL, /* message to every member of the MAP, in member order */
    ORDER_APPEND,   /* a record was appended, for who follows the log; message is a RECORD */
    ORDER_CONTENT,  /* send bytes as PAGEs of message.want.content to peer; borrowed until the next
                       step */
    ORDER_DROP,     /* forget peer: its number may be used again */
    ORDER_SAY,      /* a line for people, in message.denied.text */
    ORDER_EXIT /* everything is finished: message.denied says how it ended (status OK: in order)
                  and why */
};

struct order_action {
    enum order_action_kind kind;
    uint32_t peer;
    const uint8_t *bytes;
    size_t bytes_count;
    struct message message;
};

struct order_actions {
    struct order_action *items; /* owned by the shell: order_actions_max of them */
    uint32_t count, max;
};

/* The one allocation. ERR_INVALID names the option that is wrong. */
gradweir_status order_new(const struct order_options *options, struct order **order);
void order_free(struct order *order);

/* How many actions one step can give at most, with these options. */
uint32_t order_actions_max(const struct order_options *options);

/* Takes one event; writes actions from 0. Hostile messages are counted and answered DENIED or
 * dropped, never asserted. */
void order_step(struct order *order, const struct order_event *event,
                struct order_actions *actions);

/* When the next ORDER_TICK is due, ns; INT64_MAX: none. */
int64_t order_next(const struct order *order);

const struct ledger *order_ledger(const struct order *order);

/* Whether this peer is a worker or a reader, also one that still waits to be taken in: they answer
 * STOP with BYE. */
bool order_is_worker(const struct order *order, uint32_t peer);

/* Numbers for people and tests; all since start. */
struct order_figures {
    uint64_t pushes;             /* DESCRIBEs taken for new names */
    uint64_t verdicts[VERDICTS]; /* recorded, plus QUEUE_FULL */
    uint64_t duplicates;         /* asked or described again: answered with the first receipt */
    uint64_t foreign;            /* messages dropped: wrong epoch, unknown peer, wrong kind */
    uint64_t waits;              /* ASKs that found no free slot */
    uint32_t waiting;            /* workers that wait for a place now */
    uint32_t queue, queue_peak;  /* slots given and not yet in the window */
    uint32_t window, workers_live, shards_ready;
    uint32_t epoch;          /* in which it acts, or which it tries for */
    bool acting;             /* all shards follow it: until then nothing is decided */
    uint64_t version, whole; /* whole: stepped by all */
    /* At admission, of the gradients that this coordinator admitted itself: the ledger counts
     * verdicts, but keeps no staleness, so after a take-over these begin again. */
    uint64_t staleness_of, staleness_sum, staleness_max;
    uint64_t flushes, drains, index;
    double sum_mismatch_max; /* relative difference of the shards' norm to the client's */
};
void order_figures(const struct order *order, struct order_figures *figures);

/* One JSON object: figures, settings in force, workers (identity, state, verdicts, places,
 * staleness), shards (address, logged, version, silence), and what everything waits for, by name.
 * Returns the bytes written without the end. */
size_t order_status(const struct order *order, int64_t now_ns, char *text, size_t size);

/* What these options come to for a model, before any order is made: how many slots there are
 * (ERR_FULL when not even a queue of 1 fits into queue_bytes_max), and what shard `index` is told.
 */
gradweir_status order_slots(const struct order_options *options, const struct model *model,
                            uint32_t *slots);
void order_member(const struct order_options *options, const struct model *model, uint32_t index,
                  uint32_t slots, struct message_member *member);

/* For tests, after any step: what is kept beside the slots and workers, to find them fast, agrees
 * with them. */
bool order_sound(const struct order *order);

/* Plants a fault on purpose, for the simulator's mutants; false for an unknown name. */
bool order_plant(struct order *order, const char *name);

#endif
