/* What the files of the UCX backend share: its object, its peers, and what each file does for the
 * others.
 *
 * transport_ucx.c           the object: open, close, listen, poll, arm
 * transport_ucx_peer.c      life and death of a peer
 * transport_ucx_message.c   sends, offers, credit
 * transport_ucx_once.c      bodies that came along
 * transport_ucx_take.c      receives
 * transport_ucx_memory.c    registered memory, and of which kind it is
 * transport_ucx_renew.c     a worker that hears nobody is replaced
 * transport_ucx_probe.c     after a death: can the others still be heard?
 * transport_ucx_control.c   credit, and other words between two transports
 * transport_ucx_blocks.c    memory that both sides on one host see, and bodies that lie in it
 * transport_ucx_settings.c  UCX's configuration, addresses, what is really in use
 * transport_ucx_signals.c   handlers that UCX installs when it is loaded, taken back
 *
 *      connect                                        listener
 *         |                                              |
 *     CONNECTING --HELLO-->                          GREETING    (no event before its HELLO: it may
 * be anything) |        <--WELCOME--                          | HELLO v v OPEN OPEN |   error
 * callback, hangup, deadline           | v                                              v FAILED
 * (marked only: callbacks decide nothing) v  poll: out of the tables, offers released, FORCE close
 *      CLOSING  until sends, takes and control messages in UCX are 0
 *         v
 *       GONE   LOST is queued; polling it frees the place for the next generation */
#ifndef GRADWEIR_COMMON_TRANSPORT_UCX_H
#define GRADWEIR_COMMON_TRANSPORT_UCX_H

#include "common/transport_events.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>

extern const struct transport_functions transport_ucx_functions;

enum ucx_state {
    UCX_FREE,
    UCX_CONNECTING,
    UCX_GREETING,
    UCX_OPEN,
    UCX_FAILED,
    UCX_CLOSING,
    UCX_GONE
};

/* Kinds of active messages. Every one carries struct ucx_prefix at its head. */
enum {
    UCX_AM_HELLO = 1,
    UCX_AM_WELCOME,
    UCX_AM_DATA,
    UCX_AM_CREDIT,
    UCX_AM_PING,
    UCX_AM_PONG,
    UCX_AM_BLOCKS, /* memory that I lend you: struct ucx_blocks_offer */
    UCX_AM_SEEN,   /* I see it */
    UCX_AM_LOAN,   /* DATA whose body lies in a block; struct ucx_loan is behind the head */
    UCX_AM_COPIED, /* loans that are over: uint32_t, a bit for each block */
    UCX_AM_KINDS
};

#define UCX_MAGIC 0x47574430u /* "GWD0"; the last byte is the version of this conversation */

/* HELLO and WELCOME: magic, and how many messages the sender of it accepts. DATA and CREDIT:
 * credits given back. */
struct ucx_prefix {
    uint32_t magic;
    uint32_t credits;
};

#define UCX_BLOCKS      4 /* as many bodies as one side has on its way to another */
#define UCX_BLOCK_BYTES (UINT64_C(1) << 20)
#define UCX_CONTROL_MAX 32

/* Over TCP, bodies up to this come along with their heads: a rendezvous would be one more round
 * trip, and one more copy at the receiver. It is within one segment of TCP_RX_SEG_SIZE, and two of
 * them stay in a core's second cache. */
#define UCX_PORTION (UINT64_C(256) << 10)

/* The memfd `fd` of process `pid`, of UCX_BLOCKS blocks. Its name is the nonce, so nobody can offer
 * what is not his. */
struct ucx_blocks_offer {
    uint32_t pid, fd;
    uint64_t nonce;
};

struct ucx_loan {
    uint32_t block;
    uint32_t reserved;
    uint64_t length;
};

/* A greeting, credit, or what is said of blocks and loans. */
struct ucx_control {
    struct ucx_prefix prefix;
    unsigned char rest[UCX_CONTROL_MAX];
};
static_assert(offsetof(struct ucx_control, rest) == sizeof(struct ucx_prefix), "they leave as one");

struct ucx_send {
    struct ucx_peer *peer;
    struct ucx_send *next; /* free */
    bool sending;          /* not over: posted, lent, or both */
    bool posted;           /* UCX has it */
    bool lent;             /* the receiver has not said COPIED */
    uint32_t block;        /* lent: where the body lies */
    gradweir_status status;
    void *request; /* UCX's; another one that ends here was given up */
    uint64_t token;
    struct ucx_prefix prefix; /* UCX 1.13 reads prefix and head until the send completes */
    unsigned char head[TRANSPORT_HEAD_MAX + sizeof(struct ucx_loan)];
};
static_assert(offsetof(struct ucx_send, head) ==
                  offsetof(struct ucx_send, prefix) + sizeof(struct ucx_prefix),
              "prefix and head leave as one");

enum ucx_offer_state { UCX_OFFER_FREE, UCX_OFFER_HELD, UCX_OFFER_TAKEN, UCX_OFFER_DEAD };

struct ucx_offer {
    struct ucx_peer *peer;
    enum ucx_offer_state state;
    bool rendezvous; /* data is UCX's descriptor, ours until taken or released */
    bool copied;     /* data is ours, from malloc; else it is the network's, while at_once lasts */
    uint64_t number;
    uint64_t token;
    uint64_t length;
    const unsigned char *lent; /* the body, in a block of the sender's; NULL: it is UCX's */
    uint32_t block;
    void *data;
    void *request; /* UCX's, of a take; another one that ends here was given up */
};

/* Memory that we lend to a peer, and memory that it lends to us. They go with the connection, so
 * that who still reads in it afterwards reads what was meant for him. */
struct ucx_blocks {
    unsigned char *memory; /* NULL: none */
    int fd;
    uint64_t nonce;
    bool offered, seen;
    uint32_t busy; /* blocks with a body on its way: bits */
    uint32_t kept; /* blocks in which a body is made: bits */
};

struct ucx_view {
    const unsigned char *memory; /* NULL: none */
    bool asked, answer_owed;
    uint32_t copied_owed; /* COPIED to say: bits */
};

struct ucx_peer {
    struct ucx *ucx;
    enum ucx_state state;
    uint64_t number;
    uint64_t token;
    ucp_ep_h endpoint;
    bool connecter;  /* it was we who connected */
    bool connecting; /* and nobody answered yet */
    uint64_t deadline_ns;
    gradweir_status status; /* why it ends */
    char reason[TRANSPORT_REASON_SIZE];
    char address[64];

    bool unpaced;       /* unpace() was called since it is there */
    uint64_t portion;   /* 0: not looked up yet */
    uint32_t in_flight; /* sends whose SENT has not been polled */
    uint32_t sending;   /* sends that UCX has, or that are lent */
    uint32_t taking;    /* receives that UCX has, or that wait for their copy */
    uint32_t credits;   /* messages that the other side still accepts */
    uint32_t held;      /* messages of its that use our credit */
    uint32_t owed;      /* credits to give back */
    uint32_t granted;   /* credits that are the other side's at most */
    bool blocked;       /* a send() was answered ERR_AGAIN */
    bool writable_queued;

    bool control_busy; /* a HELLO, WELCOME, CREDIT, PING or PONG is in UCX */
    bool ping_owed, pong_owed;
    bool unheard;        /* gone, and its greeting had been late */
    uint64_t patient_ns; /* until when a greeting is not late */
    struct ucx_control control;
    struct ucx_blocks blocks;
    struct ucx_view view;
    void *closing;       /* UCX's request of the close, or NULL */
    uint64_t give_up_ns; /* when what the close did not end is given up */

    struct ucx_send *sends, *free_sends;
    struct ucx_offer *offers;
};

struct ucx_memory {
    ucp_mem_h handle;
    enum transport_memory_kind kind;
};

struct ucx_handler {
    struct ucx *ucx;
    unsigned kind;
};

struct ucx {
    struct transport base;
    struct transport_settings settings;
    struct transport_events events;
    bool handed; /* at_once was called */
    bool sated;  /* and wants no more before the owner's turn */
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_listener_h listener;
    char address[64];
    char in_force[TRANSPORT_TEXT_SIZE];
    int fd, timer_fd; /* fd is an epoll of UCX's descriptor and the timer */
    bool timer_set;

    struct ucx_peer *peers;
    struct ucx_send *sends;
    struct ucx_offer *offers;
    struct ucx_memory *memories;
    uint32_t views; /* of all peers */
    struct ucx_handler handlers[UCX_AM_KINDS];
    uint64_t serial;    /* of peers and offers */
    uint32_t abandoned; /* sends and takes that were given up, and that UCX still has */
    uint32_t silent;    /* greetings in a row that did not come, while nobody was heard */
    bool renewing, relisten, replaced; /* transport_ucx_renew.c */
    bool death;                        /* a peer's connection broke: transport_ucx_probe.c */
    uint32_t probes;                   /* 0: nobody is asked */
    uint64_t probe_from_ns, probe_ns;  /* what counts as an answer; until when */
    bool tend;                         /* some peer wants ucx_peer_tend() */
    uint32_t recent;                   /* the peer that the last message came from */

    ucp_conn_request_h *requests; /* came in a callback, wait for poll */
    uint32_t request_count;
};

/* transport_ucx.c */
gradweir_status ucx_worker_open(struct ucx *ucx);
gradweir_status ucx_worker_watch(struct ucx *ucx); /* its descriptor, by ours */
gradweir_status ucx_listen_at(struct ucx *ucx, const char *text);

/* transport_ucx_memory.c */
gradweir_status ucx_memory_map(struct transport *transport, enum transport_memory_kind kind,
                               void *pointer, uint64_t length, uint32_t *memory);
bool ucx_memory_is_far(const struct ucx *ucx, uint32_t memory); /* a GPU's: not ours to touch */
void ucx_memory_unmap(struct transport *transport, uint32_t memory);
gradweir_status ucx_knows(const struct transport *transport, enum transport_memory_kind kind);

/* transport_ucx_renew.c */
void ucx_silence(struct ucx *ucx, bool greeting); /* a peer's deadline passed without a greeting */
void ucx_renew_begin(struct ucx *ucx);            /* hangs up all peers; ucx_renew ends it */
void ucx_renew(struct ucx *ucx);

/* transport_ucx_probe.c: true while it waits for an answer. */
bool ucx_probe(struct ucx *ucx, uint64_t now_ns);
void ucx_probe_heard(struct ucx *ucx); /* a message came, from whomever */
void ucx_probe_pay(struct ucx_peer *peer);

/* transport_ucx_settings.c */
gradweir_status ucx_context_open(struct ucx *ucx);
gradweir_status ucx_address_parse(const char *text, struct sockaddr_storage *address,
                                  socklen_t *length);
void ucx_address_print(const struct sockaddr_storage *address, char *text, size_t size);
gradweir_status ucx_describe(struct transport *transport, uint64_t peer, char *text, size_t size);
uint64_t ucx_portion(struct transport *transport, uint64_t peer);

/* transport_ucx_signals.c. Runs before main, and before each context: nothing happens when there is
 * nothing left to take back. */
void ucx_leave_signals(void);

/* transport_ucx_peer.c */
struct ucx_peer *ucx_peer_find(struct ucx *ucx,
                               uint64_t number); /* NULL: not there, or its LOST has been polled */
struct ucx_peer *ucx_peer_of(struct ucx *ucx,
                             ucp_ep_h endpoint); /* NULL: none of ours, or failed */
gradweir_status ucx_connect(struct transport *transport, const char *address, uint32_t deadline_ms,
                            uint64_t token, uint64_t *peer);
void ucx_hangup(struct transport *transport, uint64_t peer);
void ucx_accept_callback(ucp_conn_request_h request, void *ucx);
void ucx_peer_fail(struct ucx_peer *peer, gradweir_status status,
                   const char *what);      /* allowed in callbacks */
void ucx_peer_free(struct ucx_peer *peer); /* its LOST has been polled */
bool ucx_peers_tend(struct ucx *ucx); /* closes, drains, accepts, checks deadlines, pays credits */
uint64_t ucx_peers_deadline(const struct ucx *ucx); /* when to tend at the latest */

/* transport_ucx_message.c */
gradweir_status ucx_handlers_set(struct ucx *ucx);
gradweir_status ucx_send(struct transport *transport, uint64_t peer,
                         const struct transport_message *message);
void ucx_sends_abandon(struct ucx_peer *peer); /* those that UCX does not end: SENT, lost */
void ucx_send_settle(struct ucx_send *send);   /* over, once it is neither posted nor lent */
void ucx_memory_use(const struct ucx *ucx, uint32_t memory, ucp_request_param_t *params);
void ucx_event_polled(struct ucx *ucx, const struct transport_event *event);

/* transport_ucx_once.c */
ucs_status_t ucx_came_along(struct ucx_offer *offer);
void ucx_data_release(struct ucx_offer *offer); /* UCX's, or our copy */

/* transport_ucx_control.c */
void ucx_control_send(struct ucx_peer *peer, unsigned kind, uint32_t credits);
void ucx_control_say(struct ucx_peer *peer, unsigned kind, const void *what, size_t bytes);
void ucx_credit_pay(struct ucx_peer *peer);
void ucx_credit_free(struct ucx_peer *peer);
uint32_t ucx_credit_first(struct ucx_peer *peer); /* what a greeting grants */
void ucx_credit_rest(struct ucx_peer *peer); /* and what there is besides, now that it is open */

/* transport_ucx_blocks.c. What is heard gives why the peer is to be hung up, or NULL. */
void ucx_blocks_pay(struct ucx_peer *peer); /* offers, answers, COPIED that are due */
const char *ucx_blocks_heard(struct ucx_peer *peer, const void *what, size_t bytes);
const char *ucx_seen_heard(struct ucx_peer *peer, size_t bytes);
const char *ucx_copied_heard(struct ucx_peer *peer, const void *what, size_t bytes);
const char *ucx_loan_heard(const struct ucx_peer *peer, const void *what, struct ucx_loan *loan);
bool ucx_loan_make(struct ucx_send *send, const struct transport_message *message,
                   struct ucx_loan *loan);                 /* the body is copied into a block */
void ucx_loan_over(struct ucx_peer *peer, uint32_t block); /* at the receiver */
gradweir_status ucx_room(struct transport *transport, uint64_t peer, uint64_t length, void **room);
void ucx_room_back(struct transport *transport, uint64_t peer, const void *room);
void ucx_blocks_end(struct ucx_peer *peer); /* in both directions, lost */

/* transport_ucx_take.c */
const void *ucx_body(struct transport *transport, uint64_t offer);
gradweir_status ucx_take(struct transport *transport, uint64_t offer, void *place, uint32_t memory,
                         uint64_t token);
void ucx_refuse(struct transport *transport, uint64_t offer);
void ucx_offers_release(struct ucx_peer *peer); /* those that nobody has taken */
void ucx_takes_abandon(struct ucx_peer *peer);  /* those that UCX does not end: LANDED, lost */

#endif
