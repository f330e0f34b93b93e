/* What the files of the client's shell share.
 *
 *   client.c         open, bind, offer, close
 *   client_model.c   groups and tensors into a layout
 *   client_options.c options of any age; keys
 *   client_connect.c ways to the shards
 *   client_loop.c    events to the session, its actions to the world
 *   client_take.c    bodies of pulls into their places
 *   client_feedback.c  what an encoding left out of a gradient
 *   client_body.c    bound tensors to a body and back; accumulate
 *   client_encode.c  a push's floats into its send buffer, and on their way while more is made
 *   client_memory.c  arrays in a GPU's memory (client_memory.h)
 *   client_direct.c  pushes that are made there
 *   client_parts.c   groups: which share of a gradient this rank holds
 *   client_wait.c    push, pull, wait
 *   client_ahead.c   bound memory that is written while a pull is still arriving
 *   client_pull.c    pulls with options: boxes, bfloat16, only if newer
 *   client_events.c  what happened; reports
 *   client_ask.c     status, tune, texts
 *   client_swap.c    rounds in which the ranks of a group swap bytes */
#ifndef GRADWEIR_CLIENT_CLIENT_INTERNAL_H
#define GRADWEIR_CLIENT_CLIENT_INTERNAL_H

#include "client/session.h"
#include "common/arithmetic.h"
#include "common/checksum.h"
#include "common/idle.h"
#include "common/keys.h"
#include "common/log.h"
#include "common/model.h"
#include "common/parts.h"
#include "common/transport.h"
#include "common/transport_outbox.h"

#include <gradweir/gradweir.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    EVENTS = 64,
    RESULTS = 64,
    HEADS_WAITING_MAX = 4096,
    BODIES_ALONG = 4 /* of a pull, under way unasked: a second cache's worth (tests/bench) */
};

/* As a push's basis: the version that bound memory holds, or the oldest that was accumulated. */
#define PULLED_LAST UINT64_MAX

struct result {
    gradweir_ticket ticket;
    bool done, pull;
    bool apart; /* a pull that does not go into bound memory */
    gradweir_receipt receipt;
};

struct take {
    uint64_t token, length;
    const void *place;
    bool boxed; /* not in the receive buffer */
    uint32_t next_free;
};

/* The pull with options that is under way. */
struct pull_boxes {
    struct part *boxes; /* GRADWEIR_BOXES_MAX of them, taken at the first such pull; so are: */
    uint8_t **to;       /* their memory, and its bytes */
    uint64_t *bytes;
    struct piece *lists; /* the pieces of each member, PIECES_MAX of each */
    uint32_t count;
    bool apart; /* it does not go into bound memory */
};

/* Room at the transport for one chunk of the body that is made: client_room.c. */
struct client_room {
    uint8_t *at; /* NULL: none */
    uint64_t peer;
    uint32_t buffer;
    uint64_t offset, length, made; /* bytes of the body; how many of them are there */
};

/* client_ahead.h */
struct ahead {
    bool fresh; /* nothing of the pull into bound memory has been taken yet */
    bool allowed, on;
    const uint8_t *before; /* what bound memory held: the receive buffer of the pull before */
    uint64_t begin, end;   /* bytes of the body between which bound memory was written */
};

struct gradweir_client {
    gradweir_options options;
    char address[256], identity[IDENTITY_MAX], lanes[16], devices[128], group_text[256];
    gradweir_log_sink sink;
    void *sink_context;
    struct log log;

    struct control_context *context;
    struct control *control;
    struct transport *transport;
    struct content_assembler *assembler; /* LAYOUT or STATUS that is on its way in */
    bool up;
    bool bound, joined, left;
    gradweir_status failed; /* OK until the session ends for good */
    char failed_text[TEXT_MAX];
    bool tuned;
    struct message_tuned tuned_answer;

    struct swap_round *swap; /* that is waited for, or NULL */
    uint32_t called;         /* ranks that wait to come into this worker's group, a bit each */

    struct session session;
    struct session_actions actions;
    struct session_event deferred[SESSION_ACTIONS_MAX]; /* arose while actions were carried out */
    uint32_t deferred_count;
    bool stepping;
    uint64_t peers[MEMBERS_MAX];    /* transport's number of each member; 0: none */
    uint32_t connects[MEMBERS_MAX]; /* tries since the last that met somebody */
    bool was_connected[MEMBERS_MAX];
    struct outbox outbox;
    bool handed; /* the transport told something at once, in this turn */
    struct take *takes;
    uint32_t takes_free, takes_max;

    struct model *model;
    gradweir_group groups[MODEL_GROUPS_MAX];
    uint32_t groups_count;
    struct parts *parts; /* bind's, of a rank; NULL: the worker is whole */
    struct parts_wanted {
        size_t tensor;
        struct part part;
    } * wanted; /* what gradweir_part said */
    size_t wanted_count;
    gradweir_tensor *tensors;
    size_t tensors_count;
    struct client_memory *memory; /* NULL: everything is the host's */
    int look_fds[2];              /* a pipe, by which memory is looked at: client_memory_check.c */
    bool looks;                   /* it is there */
    const struct arithmetic *arithmetic;
    uint64_t body_bytes;
    uint8_t *buffers[OUTSTANDING_MAX], *received, *gathered;
    float *block;    /* room for one, where gradients are not float32 */
    uint8_t *staged; /* there: a rank's share before it is encoded */
    uint8_t *rest;   /* error feedback: what is owed, a float per element; NULL: none */
    bool returns[OUTSTANDING_MAX]; /* this buffer's mass, if it is refused */
    struct client_room room;
    const uint8_t *lent[OUTSTANDING_MAX]; /* the caller's memory that is sent instead, or NULL */
    uint32_t memories[OUTSTANDING_MAX], received_memory;
    bool busy[OUTSTANDING_MAX];
    gradweir_ticket buffer_tickets[OUTSTANDING_MAX];
    uint64_t gathered_samples, gathered_basis;
    uint64_t *digests;
    struct sums_of_body {
        uint32_t *crcs; /* CRC32C of each of the model's blocks, as it travels; the tail's */
        const uint32_t *pieces;      /* of each block_bytes of the body: crcs, or finer ones */
        uint64_t block_bytes, bytes; /* of a piece, of all of them; 0: they are not known */
    } sums[OUTSTANDING_MAX];
    struct checksum_joint joint; /* of the blocks of what is pushed now */

    struct result results[RESULTS];
    gradweir_ticket last_ticket, pull_ticket, bound_ticket; /* bound: last pull into bound memory */
    struct pull_boxes pull_boxes;
    struct ahead ahead;
    bool pulled_before; /* as `pulled` was when a pull began that may move nothing */
    bool seen_any;      /* something was pulled into other memory than the bound one: */
    uint64_t seen;      /* the newest version of that */
    bool pulled;        /* the receive buffer holds a version */
    bool loaded;        /* and the bound memory too */
    bool based;         /* the bound memory has held a version: there is a basis */
    uint64_t version;   /* of the bound memory */
    uint64_t received_version;

    gradweir_event events[EVENTS]; /* ring: numbers events_next - events_count up to events_next */
    uint64_t events_next, events_dropped;
    uint32_t events_count;
    int events_fd;
    const char *turned_away; /* the last reason that was told */
    uint32_t numbers_count;  /* reported */
    struct report_number numbers[REPORT_MAX];

    struct idle idle; /* of whoever waits, with the lock held */
    pthread_mutex_t lock;
    pthread_t helper;
    bool helper_started;
    atomic_bool helper_stop;
};

/* ERR_INVALID, naming the argument, when the caller gave NULL for it. */
gradweir_status client_given(const void *argument, const char *name);

/* client.c: ERR_INVALID, saying what, when the text is too long. NULL is "". */
gradweir_status client_copy_text(char *to, size_t size, const char *from, const char *what);

/* client_model.c: takes model and tensors. */
gradweir_status client_model_build(struct gradweir_client *client, const gradweir_tensor *tensors,
                                   size_t count);

/* client_options.c: checks, and fills what an older caller's struct does not have. The texts are
 * still the caller's. */
gradweir_status client_options(const gradweir_options *given, gradweir_options *options);

/* Keys of the options, if any; the table must outlive the use of `control`. */
gradweir_status client_keys(struct gradweir_client *client, struct control_options *control,
                            struct key_table **keys);

/* client_connect.c: begins a connection to a shard (the session hears PEER_LOST when that fails);
 * one has come about. */
void client_connect(struct gradweir_client *client, uint32_t member);
void client_connected(struct gradweir_client *client, uint32_t member);

/* client_loop.c. All are called with the lock held. The outbox is made once the transport is there;
 * what goes into it leaves at the end of a turn. */
gradweir_status client_outbox(struct gradweir_client *client);
void client_event(struct gradweir_client *client, const struct session_event *event);
bool client_at_once(void *context, const struct transport_event *event); /* of the transport */
bool client_turn(struct gradweir_client *client); /* false: nothing happened */
void client_sleep(struct gradweir_client *client, uint64_t deadline_ns);

/* client_take.c: an action SESSION_TAKE; and what comes of it when the body was not at hand. */
void client_take(struct gradweir_client *client, const struct session_action *action);
void client_landed(struct gradweir_client *client, const struct transport_event *event);

/* Turns until `ready` says so. ERR_TIMEOUT names what is waited for; a session that has ended gives
 * its reason. */
typedef bool (*client_ready)(const struct gradweir_client *client, uint64_t what);
gradweir_status client_wait_until(struct gradweir_client *client, client_ready ready, uint64_t what,
                                  uint64_t deadline_ns);

/* client_body.c */
gradweir_status client_body_room(struct gradweir_client *client); /* its bytes; can they be had? */
gradweir_status
client_body_take(struct gradweir_client *client); /* buffers, once the model is known */
gradweir_status
client_body_receive(struct gradweir_client *client); /* the receive buffer, once it is needed */
void client_body_free(struct gradweir_client *client);

/* ERR_INVALID names the first tensor that has no gradient memory, unless its group is frozen. */
gradweir_status client_body_has_gradients(const struct gradweir_client *client);
gradweir_status client_body_has_parameters(const struct gradweir_client *client);
gradweir_status client_body_share(struct gradweir_client *client,
                                  uint8_t *body); /* of a rank's gradient */
/* One more body, of zeros; *spare is NULL before, and after free. */
gradweir_status client_body_spare(const struct gradweir_client *client, uint8_t **spare);
void client_body_spare_free(const struct gradweir_client *client, uint8_t **spare);
gradweir_status
client_body_load(struct gradweir_client *client); /* the receive buffer into bound memory */

/* client_parts.c. bind's part of it: parts, nonce, instance; nothing to do without ranks. */
gradweir_status client_parts_bind(struct gradweir_client *client, struct session_options *options);
void client_parts_free(struct gradweir_client *client);
void client_send_parts(struct gradweir_client *client);
/* This rank's part of tensor i; NULL: none of it. */
const struct part *client_part(const struct gradweir_client *client, size_t i);
/* Elements [first, first + n) of a part's gradient, which is packed, to their places in a tensor;
 * add: scale x them is added there. */
struct part_piece {
    const float *from; /* element first */
    uint64_t first, n;
};
void client_part_spread(const struct part *part, const struct model_tensor *tensor,
                        const struct part_piece *piece, float *to);
void client_part_add(const struct part *part, const struct model_tensor *tensor,
                     const struct part_piece *piece, float scale, float *to);

/* client_events.c. An event, and the same as a line of the log. */
void client_tell(struct gradweir_client *client, uint32_t kind, gradweir_status status,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));
void client_failed(struct gradweir_client *client, const struct session_action *action);
void client_send_report(struct gradweir_client *client);

/* client_ask.c */
void client_send_layout(struct gradweir_client *client);

/* Forgets what content came so far: the next one that is asked for is then told from it. */
gradweir_status client_fresh_content(struct gradweir_client *client);

/* client_swap.c. A round: `say` as message_swap tells, without instance and identity. All that came
 * have given as many bytes as this rank; all: room for ranks x bytes, by rank. ERR_TIMEOUT: no
 * answer at the deadline; else as message_swapped. */
struct swap_round {
    const struct message_swap *say;
    uint8_t *all;
    uint64_t meeting;
    uint32_t asked, here, got; /* bits */
    bool done;
    gradweir_status status;
};
gradweir_status client_swap(struct gradweir_client *client, struct message_swap *say,
                            uint64_t deadline_ns, struct swap_round *round);
void client_swapped(struct gradweir_client *client, const struct message_swapped *swapped);

/* client_wait.c. What a push says leaves with the next turn, the caller's to make. */
gradweir_status client_push(struct gradweir_client *client,
                            const struct session_push_request *wanted, gradweir_ticket *ticket);
gradweir_status client_wait_ticket(struct gradweir_client *client, gradweir_ticket ticket,
                                   uint32_t timeout_ms, gradweir_receipt *receipt);
void client_verdict(struct gradweir_client *client, const struct session_action *action);
void client_pulled(struct gradweir_client *client, const struct session_action *action);
gradweir_status client_pull(struct gradweir_client *client,
                            const struct session_pull_request *request, bool after,
                            gradweir_ticket *ticket);

/* client_pull.c. Gives a PULL's head the pieces of its member as a body, in memory of the client;
 * where a body of box number `box`, counted from 1, belongs. */
void client_pull_list(struct gradweir_client *client, uint32_t member, struct outbox_item *item);
void *client_pull_place(const struct gradweir_client *client, uint32_t box, uint64_t offset);
void client_pull_free(struct gradweir_client *client);

static inline void client_lock(const struct gradweir_client *client)
{
    union {
        const struct gradweir_client *is_const;
        struct gradweir_client *is_not;
    } same = {.is_const = client};
    pthread_mutex_lock(&same.is_not->lock);
}

static inline void client_unlock(const struct gradweir_client *client)
{
    union {
        const struct gradweir_client *is_const;
        struct gradweir_client *is_not;
    } same = {.is_const = client};
    pthread_mutex_unlock(&same.is_not->lock);
}

#endif
