/* The simulator: the second shell. One coordinator core, shard cores and worker cores live in one
 * process, in made-up time, over made-up networks that lose, delay and break, all from one seed.
 *
 *   sim_main.c       the command line: seeds, stories, plants
 *   sim_table.c      what was injected, per 1,000 seeds
 *   sim_story.c      messages as lines for people
 *   sim_run.c        one seed: set up, hostile half, calm half, the end
 *   sim_settings.c   what this seed's job looks like
 *   sim_events.c     time: the heap of what will happen
 *   sim_control.c    control links: late, twice, out of order, lost when they break
 *   sim_data.c       data connections: heads, bodies that land late, torn or not at all
 *   sim_server.c     the coordinator's and the shards' shells
 *   sim_worker.c     the worker's shell
 *   sim_group.c      two workers as ranks of one
 *   sim_swaps.c      workers as ranks that meet
 *   sim_user.c       its user: pulls, computes, pushes
 *   sim_boxes.c      pulls of boxes, in bfloat16, of what is newer
 *   sim_faults*.c    what goes wrong: processes, networks, servers
 *   check_log.c      what must hold of the log
 *   check_order.c    what must hold of names, receipts
 *   check_slots.c    what must hold of slots
 *   check_data.c     what must hold of floats
 *   check_end.c      what must hold when everything is quiet
 *   reference.c      a sequential server of our own: one record after the other on the whole model
 */
#ifndef GRADWEIR_SIM_SIM_H
#define GRADWEIR_SIM_SIM_H

#include "client/session.h"
#include "common/model.h"
#include "common/random.h"
#include "server/coordinator/order.h"
#include "server/shard/shard.h"

#include <setjmp.h>

enum {
    SIM_COORDINATORS = 4, /* at a time: one that reigns, or tries to, and those it replaces */
    SIM_SHARDS = 4,
    SIM_WORKERS = 8,
    SIM_ACTORS = SIM_COORDINATORS + SIM_SHARDS + SIM_WORKERS, /* in this order */
    SIM_EVENTS = 1 << 15,
    SIM_MESSAGES = 4096,
    SIM_PAGES = 256,
    SIM_CONTENT_BYTES = 256 << 10,
    SIM_CONNECTIONS = 1024,
    SIM_BODIES = 1024,
    SIM_JOBS = 256,
    SIM_PEERS = 4096,
    SIM_NAMES = 8192, /* a power of two */
    SIM_RECORDS = 8192,
    SIM_FLOATS = 3200,
    SIM_MOMENTS = 8,
    SIM_BODY_BYTES = SIM_FLOATS * 4 + SIM_MOMENTS * 24,
    SIM_BOXES = 6,
    SIM_MEMORY = 96 << 20 /* bodies of names and versions, of one seed */
};

static const int64_t US = 1000, MS = 1000000, SECOND = 1000000000;

enum sim_event_kind {
    SIM_CONTROL = 1, /* a message arrives */
    SIM_UP,          /* a shard or a worker finds a coordinator */
    SIM_ENLIST,      /* a shard notices that it has */
    SIM_DOWN,
    SIM_LOST, /* the coordinator learns that a peer is gone */
    SIM_TICK,
    SIM_JOB,       /* a shard's device is done */
    SIM_CONNECTED, /* a data connection is there */
    SIM_HEAD,
    SIM_BODY, /* a body has moved, or its connection broke meanwhile */
    SIM_SENT,
    SIM_END,      /* one side of a data connection learns that it is gone */
    SIM_USER,     /* a worker's user has thought */
    SIM_SWAP,     /* a rank says something, or again */
    SIM_FILL,     /* more of a push's body is made */
    SIM_RESTART,  /* a worker's process starts (again) */
    SIM_CUT,      /* a connection over which too little came for too long breaks */
    SIM_SUPERVISE /* somebody looks whether a coordinator is needed */
};

struct sim_event {
    int64_t at_ns;
    uint64_t order; /* ties: as they were made */
    enum sim_event_kind kind;
    uint32_t actor, process; /* process: dropped when the actor's is another */
    uint32_t from;           /* a peer number, or a connection */
    uint32_t what;           /* message, body, job */
    uint32_t side;
};

enum sim_side { SIDE_WORKER, SIDE_SHARD };

/* A data connection, by number modulo SIM_CONNECTIONS. */
struct sim_connection {
    uint32_t number; /* the shard's peer */
    uint32_t worker, shard;
    bool alive, ended[2];
    int64_t clock_ns[2];   /* per sending side: heads stay in order */
    int64_t blocked_ns[2]; /* per sending side: nothing gets through before */
};

struct sim_body {
    bool used, offered, taken, landed, returned; /* returned: the sender has its token back */
    uint32_t connection, buffer;
    enum sim_side from;
    struct head_any head;
    uint64_t length, source, sender_token, token, target;
    bool flip, list;      /* list: the pieces that a PULL wants */
    const uint8_t *ghost; /* the process that took it is dead; these bytes are still on their way */
    int64_t ghost_ns;     /* and land then */
};

struct sim_job {
    bool used;
    uint32_t shard;
    enum shard_action_kind kind;
    enum arithmetic_codec codec;
    uint64_t token, offset, begin, end;
};

/* A control connection as the coordinator sees it. */
struct sim_peer {
    uint32_t actor, process;
    uint32_t coordinator, coordinator_process;
    int64_t clock_ns[2]; /* to, from the coordinator: messages stay in order */
    int64_t cut_ns;      /* later messages are lost */
    bool lost;
    enum { LATE_UNDECIDED, LATE_HEARD, LATE_DROPPED } late; /* see comes_late */
};

struct sim_message {
    uint32_t next, page; /* page: UINT32_MAX when it has none */
    struct message message;
};

struct sim_actor {
    bool alive;
    uint32_t process;
    int64_t stopped_until_ns;
    int64_t tick_ns;       /* of the tick that is scheduled */
    int64_t skew_ns;       /* its clock is ahead of the simulator's by so much */
    uint32_t peer;         /* its control connection; 0: none */
    int64_t blocked_ns[2]; /* to, from the coordinator: nothing gets through before */
    double slowness;       /* factor on its bodies and jobs */
};

/* A slot as one coordinator sees it. INHERITED: it was somebody else's, who is replaced. */
enum check_slot_state { CHECK_FREE, CHECK_PLACED, CHECK_WINDOW, CHECK_CLOSING, CHECK_INHERITED };

struct check_slot {
    enum check_slot_state state;
    bool held; /* for a gradient that landed under another coordinator */
    uint64_t generation;
    uint32_t freed; /* bit per shard: FREED has reached the coordinator */
};

/* A slot as one shard should see it. */
struct check_place {
    uint64_t resident;      /* admitted generation that lies there until FREED */
    uint64_t closed, after; /* of the CLOSE it has heard last */
    uint64_t freed;         /* nothing of this generation, or an earlier one, lands any more */
};

struct sim_shard {
    struct shard *shard;
    uint64_t bytes;
    struct shard_actions actions;
    struct message_member member;
    uint32_t epoch, promised; /* in which it became a member; seen last */
    uint64_t seen_version, tiles_ahead;
    bool seen_any;
    struct check_place places[SLOTS_MAX];
    enum { DOOM_NONE, DOOM_STEP, DOOM_TILE, DOOM_EVENT } doom; /* where it dies */
    bool begun; /* it died in the middle of logging this */
    struct record begun_record;
    uint64_t torn_at, halved_at; /* log index at which it died in a tile, in an event: not twice */
};

enum user_phase { USER_IDLE, USER_PULLING, USER_COMPUTING, USER_WAITING };

struct sim_worker {
    struct session session;
    char identity[IDENTITY_MAX];
    uint32_t outstanding;
    bool reader, gone, out; /* gone: will not come back; out: was told so for good */
    bool leaving, connecting;
    enum user_phase phase;
    bool busy[OUTSTANDING_MAX], pulled_once;
    uint64_t basis, pushes;
    double norms[OUTSTANDING_MAX];                       /* of what lies in its buffers */
    struct session_push_request making[OUTSTANDING_MAX]; /* what it will be when it is filled */
    uint32_t since_pull;
    uint32_t connections[SIM_SHARDS]; /* by member; 0: none */
    uint32_t verdicts, pulls;         /* since the calm began */
    bool has_old;
    struct message old; /* something it once said, of any incarnation */
    uint8_t buffers[OUTSTANDING_MAX][SIM_BODY_BYTES];
    uint8_t made[OUTSTANDING_MAX][SIM_BODY_BYTES]; /* what is not in them yet */
    uint8_t receive[2 * SIM_BODY_BYTES];           /* a body, and behind it boxes */
    struct part boxes[SIM_BOXES];                  /* of the pull that is under way: sim_boxes.c */
    uint64_t places[SIM_BOXES];                    /* in `receive` */
    struct session_pull_request request;
    struct piece lists[SIM_SHARDS][SIM_BOXES];
};

/* What one name has been through. */
struct sim_name {
    bool used, corrupted, heard, answered;
    struct name name;
    uint64_t digest, basis, samples;
    double norm;
    uint32_t purpose;
    bool finite;
    const uint8_t *body;
    uint64_t index;   /* of its record; 0: none */
    uint64_t version; /* when it was written */
    uint32_t verdict;
    struct message_receipt receipt; /* the first */
};

struct sim_coordinator {
    struct order *order;
    uint32_t number; /* how many were before it */
    bool drain_told;
    bool doomed, last_words;      /* dies in the middle of its next step; now */
    uint32_t members[SIM_SHARDS]; /* peer of each, from MEMBER; 0: none yet */
    struct check_slot slots[SLOTS_MAX];
};

struct reference_entry {
    uint32_t slot;
    uint64_t basis, samples, admitted;
    double norm;
    const uint8_t *body;
    double weight;      /* without its clip, at the last step */
    double weight_then; /* and at the step when it was the newest entry; 0: at none */
    uint64_t step_then; /* log position of that step */
};

struct reference {
    float parameters[SIM_FLOATS], average[SIM_FLOATS];
    float states[ARITHMETIC_STATES_MAX][SIM_FLOATS];
    struct moments moments[SIM_MOMENTS];
    struct moments at_step[SIM_MOMENTS];
    struct reference_entry window[WINDOW_MAX];
    uint32_t window_n;
    uint64_t fresh, version;
    bool first;
    struct record_step step; /* waits for SUMMED */
    const uint8_t *sources[WINDOW_MAX];
    bool waits;
    uint32_t versions;
    uint64_t admitted, stepped;  /* log positions: gradients so far; at the last step */
    uint64_t turned[SIM_FLOATS]; /* by stacks: the position of each element's turn; 0: none */
    float back[SIM_FLOATS];
    const uint8_t *bodies[SIM_RECORDS];   /* by version */
    float fronts[WINDOW_MAX][SIM_FLOATS]; /* sums from a position (modulo) to the element's turn */
};

/* What goes wrong, and what makes it worse. */
#define FAULT_MAP(X)                                                                               \
    X(control_breaks, "control connections that break")                                            \
    X(lost_messages, "control messages lost with their connection")                                \
    X(duplicates, "control messages that arrive twice")                                            \
    X(overtakes, "control messages that overtake others")                                          \
    X(late_orders, "messages of a coordinator heard after its connection was given up")            \
    X(repeats, "old messages of a worker said again over another connection")                      \
    X(delays, "messages and bodies that take 5 to 40 times as long")                               \
    X(partitions_in, "partitions: nothing reaches the coordinator from one")                       \
    X(partitions_out, "partitions: nothing reaches one from the coordinator")                      \
    X(partitions_both, "partitions: both ways")                                                    \
    X(storms, "storms: everybody's control connection breaks at once")                             \
    X(data_breaks, "data connections that break")                                                  \
    X(data_partitions, "data partitions, one way or both")                                         \
    X(torn_bodies, "bodies torn by their connection's end")                                        \
    X(corrupt_bodies, "bodies with a flipped bit")                                                 \
    X(slow_bodies, "bodies that move 60 times slower")                                             \
    X(worker_stops, "workers stopped for a while")                                                 \
    X(worker_deaths, "workers killed")                                                             \
    X(worker_restarts, "workers started again")                                                    \
    X(twins, "another process under a worker's name; the old one goes on")                         \
    X(byes, "workers that leave in order")                                                         \
    X(slow_workers, "workers that become slow")                                                    \
    X(shard_stops, "shards stopped for a while")                                                   \
    X(shard_breaks, "shards whose control connection breaks")                                      \
    X(late_enlists, "ENLISTs behind what a shard says over its new connection")                    \
    X(slow_shards, "shards that become slow")                                                      \
    X(shard_deaths, "shard processes killed")                                                      \
    X(shard_returns, "shard processes that went on in the same memory")                            \
    X(half_events, "events half done when their process died")                                     \
    X(tiles_ahead, "tiles of a step made while their gradient landed")                             \
    X(torn_tiles, "tiles of a step half done when their process died")                             \
    X(ghost_bodies, "bodies that landed after their process had died")                             \
    X(coordinator_deaths, "coordinators killed")                                                   \
    X(second_coordinators, "coordinators started while another one lives")                         \
    X(coordinators_fenced, "coordinators that learned that they were replaced")                    \
    X(massacres, "several servers killed at once")                                                 \
    X(clock_steps, "clocks that jump forward")                                                     \
    X(old_epochs, "messages of an epoch that is over")                                             \
    X(not_finite, "gradients with NaN, Inf or a huge element")                                     \
    X(bad_moments, "gradients with NaN in their MOMENTS")                                          \
    X(fillings, "gradients that leave while they are made")                                        \
    X(odd_bases, "gradients of a version long past or not yet made")                               \
    X(tunes, "settings changed")                                                                   \
    X(tiny_queues, "jobs with a queue of 1 to 3")                                                  \
    X(tiny_rings, "jobs with a ring of 32 records")                                                \
    X(riding_pulls, "pulls that ride with a push")                                                 \
    X(coded, "jobs whose gradients are not float32")                                               \
    X(riding_words, "descriptions by way of a shard")                                              \
    X(group_pushes, "gradients of two ranks")                                                      \
    X(group_ends, "groups that ended with one of their ranks, or anew")                            \
    X(swap_rounds, "rounds in which ranks met")                                                    \
    X(swap_partial, "of these, rounds that not all came to")                                       \
    X(swap_refused, "ranks that came late, or twice")                                              \
    X(parted_bases, "gradients whose ranks name two bases")                                        \
    X(summed_steps, "steps that wait for sums over all shards")

struct sim_counts {
    uint64_t events, gradients, admitted, refused, steps, stacks, flushes, pulls, drains, records;
    uint64_t box_pulls, half_pulls, newer_pulls, unmoved, exact_pulls, not_held;
#define FAULT_FIELD(name, words) uint64_t name;
    FAULT_MAP(FAULT_FIELD)
#undef FAULT_FIELD
};

struct sim_settings {
    uint32_t shards, workers;
    struct order_options order;
    int64_t pull_patience_ns, resend_ns, retry_ns;
    uint64_t tile;
    int64_t delay_ns, think_ns, hostile_ns;
    double trouble; /* 0: none .. 1 */
    bool drain;
    bool group;           /* workers 0 and 1 are ranks of one: sim_group.c */
    uint32_t stale_pulls; /* pull only before every so-manieth gradient */
};

struct sim {
    uint64_t seed;
    bool story, failed, hostile, calm, quiet, exited;
    bool ranks;        /* --ranks: where there are two workers, they are two ranks of one */
    const char *plant; /* a fault for the cores, or NULL */
    bool planted;      /* some core knew it */
    char sentence[512];
    char check[64]; /* the function that found it */
    uint64_t hash;  /* of everything that happened */
    sigjmp_buf leave;
    struct random random, network, faults;
    struct sim_settings settings;
    struct sim_counts counts;
    int64_t now_ns, fault_ns, calm_ns, quiet_ns;
    uint64_t calm_version;

    struct sim_event *heap;
    uint32_t heap_n, messages_free;
    uint64_t events_made;
    struct sim_message *messages;
    uint8_t (*pages)[PAGE_BYTES_MAX];
    bool pages_used[SIM_PAGES];
    uint8_t *content;
    struct sim_connection *connections;
    struct sim_body *bodies;
    uint32_t connections_n, bodies_hint;
    struct sim_job jobs[SIM_JOBS];
    struct sim_peer *peers;
    uint32_t peers_n;

    struct model *model;
    uint8_t layout[2048];
    size_t layout_bytes;
    uint64_t body_bytes;
    struct parts *parts[2]; /* of the group's ranks */
    uint64_t group_starts;
    struct sim_swaps *swaps;
    uint64_t heard_from; /* coordinator and process: of the message that a worker hears now */
    struct sim_actor actors[SIM_ACTORS];
    struct sim_coordinator *coordinators; /* SIM_COORDINATORS of them */
    uint32_t newest, coordinators_n;      /* the newest; how many there were */
    struct order_actions order_actions;
    struct sim_shard shards[SIM_SHARDS];
    struct sim_worker *workers; /* SIM_WORKERS of them */
    uint32_t workers_n;
    struct session_actions session_actions;

    struct sim_name *names;
    uint64_t generations[SLOTS_MAX]; /* highest that was given, per slot, and to whom */
    struct name owners[SLOTS_MAX];
    /* The log: what some shard has logged. It stands, whoever reigns next. */
    uint64_t *hashes; /* of records, by index */
    struct record *log;
    uint64_t index;
    struct reference *reference;
    struct ledger ledger;       /* the checker's own fold */
    struct law_settings before; /* in force before its newest record */
    uint8_t *memory;
    size_t memory_used;
};

#endif
