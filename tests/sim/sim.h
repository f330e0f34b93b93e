/* The simulator: the second shell. One coordinator core, shard cores and worker cores live in one
 * process, in made-up time, over made-up networks that lose, delay and break, all from one seed.
 *
 *   sim_main.c       the command line: seeds, stories, plants
 *   sim_run.c        one seed: set up, hostile half, calm half, the end
 *   sim_settings.c   what this seed's job looks like
 *   sim_events.c     time: the heap of what will happen
 *   sim_control.c    control links: in order, lost only when they break
 *   sim_data.c       data connections: heads, bodies that land late, torn or not at all
 *   sim_server.c     the coordinator's and the shards' shells
 *   sim_worker.c     the worker's shell and its user
 *   sim_faults.c     what goes wrong
 *   check_order.c    what must hold of log, receipts, slots
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
    SIM_SHARDS = 4,
    SIM_WORKERS = 8,
    SIM_ACTORS = 1 + SIM_SHARDS + SIM_WORKERS, /* coordinator, shards, workers */
    SIM_EVENTS = 1 << 15,
    SIM_MESSAGES = 4096,
    SIM_PAGE_BYTES = 2048,
    SIM_CONNECTIONS = 1024,
    SIM_BODIES = 1024,
    SIM_JOBS = 256,
    SIM_PEERS = 4096,
    SIM_NAMES = 8192, /* a power of two */
    SIM_RECORDS = 8192,
    SIM_FLOATS = 3200,
    SIM_MOMENTS = 8,
    SIM_BODY_BYTES = SIM_FLOATS * 4 + SIM_MOMENTS * 24,
    SIM_MEMORY = 96 << 20 /* bodies of names and versions, of one seed */
};

static const int64_t US = 1000, MS = 1000000, SECOND = 1000000000;

enum sim_event_kind {
    SIM_CONTROL = 1, /* a message arrives */
    SIM_UP,          /* a worker's control connection is there */
    SIM_DOWN,
    SIM_LOST, /* the coordinator learns that a peer is gone */
    SIM_TICK,
    SIM_JOB,       /* a shard's device is done */
    SIM_CONNECTED, /* a data connection is there */
    SIM_HEAD,
    SIM_BODY, /* a body has moved, or its connection broke meanwhile */
    SIM_SENT,
    SIM_END,    /* one side of a data connection learns that it is gone */
    SIM_USER,   /* a worker's user has thought */
    SIM_RESTART /* a worker's process starts (again) */
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
    int64_t clock_ns[2]; /* per sending side: heads stay in order */
};

struct sim_body {
    bool used, offered, taken, landed, returned; /* returned: the sender has its token back */
    uint32_t connection, buffer;
    enum sim_side from;
    struct head_any head;
    uint64_t length, source, sender_token, token, target;
    bool flip;
};

struct sim_job {
    bool used;
    uint32_t shard;
    enum shard_action_kind kind;
    uint64_t token, offset, length, begin, end;
};

/* A control connection as the coordinator sees it. */
struct sim_peer {
    uint32_t actor, process;
    int64_t cut_ns; /* later messages are lost */
    bool lost;
};

struct sim_message {
    uint32_t next;
    struct message message;
    uint8_t page[SIM_PAGE_BYTES];
};

struct sim_actor {
    bool alive;
    uint32_t process;
    int64_t stopped_until_ns;
    int64_t tick_ns;     /* of the tick that is scheduled */
    uint32_t peer;       /* its control connection; 0: none */
    int64_t clock_ns[2]; /* of its control link: to, from the coordinator */
    double slowness;     /* factor on its bodies and jobs */
};

struct sim_shard {
    struct shard *shard;
    uint64_t bytes;
    struct shard_actions actions;
    struct message_member member;
    uint64_t seen_version;
    bool seen_any;
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
    uint32_t since_pull;
    uint32_t connections[SIM_SHARDS]; /* by member; 0: none */
    uint32_t verdicts, pulls;         /* since the calm began */
    bool has_old;
    struct message old; /* something it once said, of any incarnation */
    uint8_t buffers[OUTSTANDING_MAX][SIM_BODY_BYTES];
    uint8_t receive[SIM_BODY_BYTES];
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

enum check_slot_state { CHECK_FREE, CHECK_PLACED, CHECK_WINDOW, CHECK_CLOSING };

struct check_slot {
    enum check_slot_state state;
    uint64_t generation, closed, closed_after;
    uint32_t freed;                /* bit per shard: FREED has reached the coordinator */
    uint64_t resident[SIM_SHARDS]; /* admitted generation that lies there until FREED */
};

struct reference_entry {
    uint32_t slot;
    uint64_t basis, samples, admitted;
    double norm;
    const uint8_t *body;
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
    const uint8_t *bodies[SIM_RECORDS]; /* by version */
};

#define FAULT_MAP(X)                                                                               \
    X(control_breaks)                                                                              \
    X(data_breaks)                                                                                 \
    X(torn_bodies)                                                                                 \
    X(corrupt_bodies)                                                                              \
    X(worker_stops)                                                                                \
    X(worker_deaths)                                                                               \
    X(zombies)                                                                                     \
    X(byes)                                                                                        \
    X(shard_stops)                                                                                 \
    X(shard_breaks)                                                                                \
    X(repeats)                                                                                     \
    X(old_epochs)                                                                                  \
    X(not_finite)                                                                                  \
    X(odd_bases)                                                                                   \
    X(slow_bodies)                                                                                 \
    X(tunes)

struct sim_counts {
    uint64_t events, gradients, admitted, refused, steps, flushes, pulls, drains, records;
#define FAULT_FIELD(name) uint64_t name;
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
    uint32_t stale_pulls; /* pull only before every so-manieth gradient */
};

struct sim {
    uint64_t seed;
    bool story, failed, hostile, calm, quiet, exited;
    const char *plant;
    char sentence[512];
    sigjmp_buf leave;
    struct random random, network, faults;
    struct sim_settings settings;
    struct sim_counts counts;
    int64_t now_ns, fault_ns, calm_ns, quiet_ns;
    uint64_t calm_version;

    struct sim_event *heap;
    uint32_t heap_n;
    uint64_t events_made;
    struct sim_message *messages;
    uint32_t messages_free;
    struct sim_connection *connections;
    uint32_t connections_n;
    struct sim_body *bodies;
    uint32_t bodies_hint;
    struct sim_job jobs[SIM_JOBS];
    struct sim_peer *peers;
    uint32_t peers_n;

    struct model *model;
    uint8_t layout[SIM_PAGE_BYTES];
    size_t layout_bytes;
    uint64_t body_bytes;
    struct sim_actor actors[SIM_ACTORS];
    struct order *order;
    struct order_actions order_actions;
    uint32_t members[SIM_SHARDS]; /* peer of each, from MEMBER; 0: none yet */
    struct sim_shard shards[SIM_SHARDS];
    struct sim_worker *workers; /* SIM_WORKERS of them */
    uint32_t workers_n;
    struct session_actions session_actions;

    struct sim_name *names;
    struct check_slot slots[SLOTS_MAX];
    uint64_t *hashes; /* of records, by index */
    struct record *log;
    uint64_t index;
    struct reference *reference;
    struct ledger ledger;       /* the checker's own fold */
    struct law_settings before; /* in force before its newest record */
    uint8_t *memory;
    size_t memory_used;
};

/* sim_main.c */
_Noreturn void sim_fail(struct sim *sim, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sim_tell(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint8_t *sim_remember(struct sim *sim, const void *bytes, size_t count);

/* sim_run.c */
gradweir_status sim_open(struct sim **sim);
void sim_close(struct sim *sim);
bool sim_run(struct sim *sim, uint64_t seed); /* false: sentence says what was wrong */

/* sim_settings.c */
void settings_choose(struct sim *sim);
void settings_tell(struct sim *sim);

/* sim_events.c */
void event_add(struct sim *sim, struct sim_event event);
bool event_next(struct sim *sim, struct sim_event *event);
int64_t event_delay(struct sim *sim, double factor);
bool chance(struct random *random, double p);
double between(struct random *random, double low, double high);

/* sim_control.c */
static inline uint32_t actor_shard(uint32_t shard)
{
    return 1 + shard;
}
static inline uint32_t actor_worker(uint32_t worker)
{
    return 1 + SIM_SHARDS + worker;
}
void control_start(struct sim *sim);
void control_up(struct sim *sim, uint32_t actor);
void control_break(struct sim *sim, uint32_t actor, bool tell);
void control_to_coordinator(struct sim *sim, uint32_t actor, const struct message *message);
void control_to_peer(struct sim *sim, uint32_t peer, const struct message *message);
void control_arrives(struct sim *sim, const struct sim_event *event);
void control_release(struct sim *sim, uint32_t message);
uint32_t control_copy(struct sim *sim, const struct message *message);

/* sim_data.c */
void data_connect(struct sim *sim, uint32_t worker, uint32_t shard);
void data_break(struct sim *sim, uint32_t connection);
void data_break_all(struct sim *sim, uint32_t worker);
void data_send(struct sim *sim, const struct sim_body *body);
void data_take(struct sim *sim, uint64_t offer, uint64_t target, uint64_t token);
void data_refuse(struct sim *sim, uint64_t offer);
void data_event(struct sim *sim, const struct sim_event *event);
struct sim_connection *data_connection(struct sim *sim, uint32_t number);

/* sim_server.c */
void server_start(struct sim *sim);
void server_stop(struct sim *sim);
void server_enlist(struct sim *sim, uint32_t shard);
void server_order(struct sim *sim, const struct order_event *event);
void server_shard(struct sim *sim, uint32_t shard, const struct shard_event *event);
void server_shard_message(struct sim *sim, uint32_t shard, const struct message *message);
void server_job(struct sim *sim, const struct sim_event *event);
void server_wake(struct sim *sim, uint32_t actor, int64_t at_ns);

/* sim_worker.c */
void worker_start(struct sim *sim, uint32_t worker);
void worker_step(struct sim *sim, uint32_t worker, struct session_event event);
void worker_message(struct sim *sim, uint32_t worker, const struct message *message);
void worker_user(struct sim *sim, uint32_t worker);
bool worker_lives(const struct sim *sim, uint32_t worker);

/* sim_faults.c */
void faults_next(struct sim *sim);
void fault_kill(struct sim *sim, uint32_t worker, int64_t back_ns);

/* check_order.c */
void check_append(struct sim *sim, const struct record *record);
void check_told(struct sim *sim, uint32_t peer, const struct message *message);
void check_all_told(struct sim *sim, const struct message *message);
void check_described(struct sim *sim, uint32_t worker, const struct message_describe *describe);
void check_freed(struct sim *sim, uint32_t shard, const struct message_freed *freed, bool arrived);
void check_shard(struct sim *sim, uint32_t shard);
struct sim_name *check_name(struct sim *sim, const struct name *name);
bool check_is_old(const struct sim *sim, const struct message *message);

/* check_data.c */
void check_whole_body(struct sim *sim, const struct sim_name *known, uint32_t slot);
void check_landing(struct sim *sim, uint32_t shard, const struct sim_body *body);
void check_reply(struct sim *sim, uint32_t shard, const struct head_parameters *head);
void check_left(struct sim *sim, uint32_t shard, const struct sim_body *body);
void check_pulled(struct sim *sim, uint32_t worker, uint64_t version);
void check_stepped(struct sim *sim, uint32_t shard);

/* check_end.c */
bool check_progress(struct sim *sim, char *text, size_t size);
bool check_quiet(struct sim *sim, char *text, size_t size);
void check_end(struct sim *sim);

/* reference.c */
void reference_init(struct sim *sim);
void reference_apply(struct sim *sim, const struct record *record, const struct sim_name *known);
void reference_plan(const struct sim *sim, const struct record_step *step,
                    struct arithmetic_plan *plan);

#endif
