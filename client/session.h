/* A worker's core: joins, keeps its data-plane sessions, pushes, pulls. Events in, actions out; no
 * IO, no clock, no threads, no allocation after session_init.
 *
 *   session.c          joining, the step function
 *   session_members.c  members: connecting, HELLO, what breaks and what moves
 *   session_push.c     places, receipts
 *   session_words.c    descriptions, and receipts that come by way of a member
 *   session_chunk.c    chunks of a body that may still be in the making
 *   session_part.c     the pieces of a rank's share, instead of chunks
 *   session_pull.c     one version of all members
 *
 * A coordinator that goes and comes (the control connection breaks, or not; the epoch is higher) is
 * met by JOIN with the same nonce. Whatever is under way then asks again, and ends in its first
 * verdict, in the place that was held for its body, or in a new place and the same bytes again.
 * Messages of an epoch below the one that is known are dropped.
 *
 * The shell owns the bytes: send buffers by number (0 .. outstanding - 1), one receive buffer. Both
 * hold a body: all parameters as float32, then all MOMENTS (24 bytes each). Only a gradient's
 * elements are in the job's codec, which JOINED tells. A pull of boxes lands in memory of each box
 * instead. */
#ifndef GRADWEIR_CLIENT_SESSION_H
#define GRADWEIR_CLIENT_SESSION_H

#include "common/codec.h"
#include "common/heads.h"
#include "common/ledger.h"
#include "common/message.h"
#include "common/parts.h"
#include "common/pieces.h"

#include <stdbool.h>

enum {
    SESSION_CHUNKS_AHEAD = 4,  /* in flight to one member */
    SESSION_PIECES_AHEAD = 24, /* of a share, which may be small: below a peer's offers_max */
    SESSION_RETRIES_MAX =
        64, /* the pause between tries to connect doubles up to so many retry_ns */
    SESSION_PAUSES_MAX =
        16, /* the pause before bodies are sent again doubles up to so many resend_ns */
    SESSION_ACTIONS_MAX =
        1024 /* of one step: 64 members x (4 chunks, 8 empty heads, a pull), ... */
};

struct session_options {
    char identity[IDENTITY_MAX];
    uint8_t nonce[NONCE_BYTES];
    uint32_t role;
    uint32_t outstanding;
    uint64_t layout_hash; /* 0: a reader that takes what is there */
    uint64_t elements, moments;
    const struct parts *parts; /* of one rank of a group, borrowed; NULL: the worker is whole */
    const struct model *model; /* what parts and boxes are of, borrowed; NULL: there are neither */
    uint64_t instance;         /* with parts: of this process, by chance */
    int64_t resend_ns;         /* without a receipt for so long, a push is sent again; e.g. 2 s */
    int64_t retry_ns; /* first pause before a refused or broken thing is tried again; e.g. 5 ms */
};

enum session_event_kind {
    SESSION_UP = 1,    /* the control connection is there (again) */
    SESSION_DOWN,      /* it broke */
    SESSION_MESSAGE,   /* from the coordinator */
    SESSION_CONNECTED, /* the data connection to member is there */
    SESSION_PEER_LOST, /* it is gone; all its tokens have come back */
    SESSION_OFFERED,   /* head (and body) from member */
    SESSION_LANDED,    /* a body of a TAKE */
    SESSION_SENT,      /* a CHUNK's body has left */
    SESSION_PUSH,      /* by the user: buffer is filled, or being filled */
    SESSION_FILLED,    /* and by now to this extent (push) */
    SESSION_PULL,      /* by the user; `after` his newest push: the pull rides with it */
    SESSION_BYE,       /* by the user: leave in order */
    SESSION_TICK
};

/* filling: the buffer's first `filled` bytes will not change any more and may leave; the rest, norm
 * and digest follow by FILLED (buffer, filling, filled, norm, digest), the last of which says
 * filling = false. Each push that begins so ends so, whatever becomes of it: its verdict waits for
 * that. */
struct session_push_request {
    uint32_t buffer, purpose;
    uint64_t basis, samples, digest;
    double norm;
    bool filling;
    uint64_t filled; /* bytes from the body's start */
};

/* All of it as float32 unless boxes are named: these alone, each into memory of its own. */
struct session_pull_request {
    const struct part *boxes; /* checked, at most PIECES_MAX; borrowed until PULLED */
    uint32_t boxes_count;
    bool half;        /* boxes of parameters as bfloat16 */
    bool newer;       /* only what is newer than `version`: PULLED says whether anything moved */
    bool exact;       /* exactly `version`: ERR_REFUSED when that is not held any more */
    uint64_t version; /* of newer or exact */
};

struct session_event {
    enum session_event_kind kind;
    int64_t now_ns;
    const struct message *message;
    uint32_t member;
    const struct head_any *head;
    uint64_t offer, length, token;
    gradweir_status status;
    uint32_t crc; /* LANDED: of the body where it lies */
    bool after;   /* PULL */
    struct session_push_request push;
    struct session_pull_request pull;
};

enum session_action_kind {
    SESSION_SEND = 1, /* message to the coordinator */
    SESSION_CONNECT,  /* to member's address */
    SESSION_HANGUP,   /* member's connection; PEER_LOST comes back */
    SESSION_HEAD,     /* head without a body to member */
    SESSION_LIST,     /* head, and the member's pieces (session_pull_pieces) as its body. The shell
                         fills head.crc */
    SESSION_CHUNK, /* head and `length` bytes at `offset` of send buffer `buffer`; SENT comes back.
                      The shell fills head.crc */
    SESSION_TAKE, /* the offered body to `offset` of the receive buffer (box 0), or of the memory of
                     box number `box`, counted from 1; LANDED comes back */
    SESSION_REFUSE,
    SESSION_JOINED,  /* the job has taken us in (again) */
    SESSION_VERDICT, /* buffer is free; message.receipt says why. verdict NONE: its fate is unknown
                        (status) */
    SESSION_PULLED,  /* the receive buffer, or all boxes, hold `version`; not moved: nothing is
                        newer,  `version` is the newest. ERR_REFUSED: not held, `version` is the
                        newest */
    SESSION_SAY,     /* message.denied.text, a warning for people */
    SESSION_FAILED,  /* for good: status and message.denied.text */
    SESSION_LEFT     /* BYE was answered */
};

struct session_action {
    enum session_action_kind kind;
    uint32_t member, buffer, box;
    bool moved;
    uint64_t offer, offset, length, token, version;
    gradweir_status status;
    struct head_any head;
    struct message message;
};

struct session_actions {
    struct session_action *items; /* SESSION_ACTIONS_MAX of them */
    uint32_t count;
};

enum member_state { MEMBER_AWAY, MEMBER_CONNECTING, MEMBER_GREETING, MEMBER_OPEN };

struct session_member {
    struct member where;
    enum member_state state;
    uint32_t number;  /* of the session there */
    int64_t pause_ns; /* before the next try; doubles with each that fails */
    int64_t retry_ns; /* AWAY: connect then; GREETING: say HELLO again then (INT64_MAX: an answer is
                         awaited) */
    uint64_t offset, bytes; /* its part of a body as float32 */
    struct session_span {
        uint64_t offset, bytes;
    } gradient;         /* and in the job's codec */
    uint32_t in_flight; /* chunks of all pushes */
};

/* WANTS_PLACE with a generation had a place under a coordinator that is gone: it may be held for
 * it, or it gets another, or its verdict. ENDING: the verdict is known, but chunks are in flight
 * yet, so the buffer is not free. */
enum push_state { PUSH_FREE, PUSH_WANTS_PLACE, PUSH_SENDING, PUSH_ENDING };

struct session_push {
    enum push_state state;
    struct session_push_request what;
    uint64_t sequence, generation;
    uint32_t slot;
    int64_t resend_ns, pause_ns; /* when it is sent again, and how long after that the next time */
    uint32_t tries;              /* how often it was sent */
    uint32_t by;                 /* member + 1 that its description went by; 0: by none */
    gradweir_status status;      /* ENDING */
    struct message_receipt receipt;
    uint64_t next[MEMBERS_MAX]; /* chunk to send next, per member; UINT64_MAX: all sent. Of a share:
                                   byte of the member's range behind the last piece */
    uint64_t before[MEMBERS_MAX]; /* of a share: bytes that went before, counted from `next` 0 on */
    uint32_t in_flight[MEMBERS_MAX];
};

struct session_pull_part {
    bool asked, complete, exact;
    bool apart;                                         /* holds nothing of what is pulled */
    uint64_t ticket, version, offered, received, total; /* bytes as they travel */
    uint32_t box;                                       /* whose piece comes now */
    uint64_t box_offered;                               /* bytes of that piece */
    uint32_t in_flight;                                 /* TAKEs that have not LANDED */
    int64_t retry_ns;                                   /* INT64_MAX: not waiting to ask again */
};

struct session {
    struct session_options options;
    bool up, joined, failed, leaving;
    bool unanswered; /* neither JOINED nor a RECEIPT has come over this connection yet */
    bool resting;    /* taken out of a round: joins again when there is something to say */
    int64_t join_ns; /* without an answer JOIN is said again then; INT64_MAX: none is awaited */
    uint32_t worker, epoch, timeline, members_count;
    uint32_t
        older; /* epoch of a coordinator that answers although its time is over; 0: none does */
    uint64_t incarnation, job, chunk_bytes, newest;
    enum arithmetic_codec codec; /* of gradients; first parameters are float32 */
    double magnitude_max;
    bool first; /* first parameters are there */
    uint8_t pass[NONCE_BYTES];
    uint64_t sequence; /* last given */
    struct session_place {
        uint64_t sequence, generation; /* 0: none */
        uint32_t slot;
    } places[OUTSTANDING_MAX]; /* that came ahead of their pushes, by sequence */
    struct session_member members[MEMBERS_MAX];
    struct session_push pushes[OUTSTANDING_MAX];
    bool pulling, pull_refused; /* refused: it ends once nothing of it lands any more */
    struct session_pull_request pull;
    uint64_t pull_version, tickets;
    uint64_t pull_after; /* sequence of the push that the pull rides with; 0: none (any more) */
    struct session_pull_part parts[MEMBERS_MAX];
    int64_t now_ns;
    uint64_t strange; /* heads and messages that fit nothing */
    struct {
        bool other_bytes;
    } plant;
    struct session_actions *out; /* only while session_step runs */
};

void session_init(struct session *session, const struct session_options *options);
void session_step(struct session *session, const struct session_event *event,
                  struct session_actions *actions);
int64_t session_next(const struct session *session); /* when TICK is due; INT64_MAX: none */

/* Plants a fault on purpose, for the simulator's mutants; false for an unknown name. */
bool session_plant(struct session *session, const char *name);

/* What it waits for, as a sentence; "" for nothing. */
void session_waiting(const struct session *session, char *text, size_t size);

/* In which numbers a push travels; which part of it is a member's. */
uint64_t session_chunk(const struct session *session, const struct session_push *push); /* bytes */
enum arithmetic_codec session_codec(const struct session *session, uint32_t purpose);
struct session_span session_span(const struct session *session, const struct session_push *push,
                                 uint32_t member);

/* Between the session's files. */
struct session_action *session_act(struct session *session, enum session_action_kind kind);
struct message *session_tell(struct session *session, enum message_kind kind);
void session_join(struct session *session);
void session_wake(struct session *session);          /* joins again if it rests */
void session_places_forget(struct session *session); /* those that came ahead */
void session_members_told(struct session *session, const struct message_joined *joined, bool greet);
void session_member_hello(struct session *session, uint32_t member);
void session_member_answered(struct session *session, const struct session_event *event);
void session_member_lost(struct session *session, uint32_t member);
void session_member_moved(struct session *session, const struct message_moved *moved);
void session_members_tick(struct session *session);
int64_t session_members_next(const struct session *session);
/* Whether the next chunk (piece) of a push for this member is there; sends it, from the session's
 * idea of where it lies. */
bool session_chunk_ready(const struct session *session, const struct session_push *push,
                         uint32_t member);
void session_chunk_send(struct session *session, struct session_push *push, uint32_t member);
/* The next piece of this rank's share for the member goes, or the word that there is none. */
uint32_t session_part_ahead(const struct session *session); /* pieces to one member */
void session_part_send(struct session *session, struct session_push *push, uint32_t member);
void session_push_start(struct session *session, const struct session_push_request *what);
void session_push_filled(struct session *session, const struct session_push_request *what);
void session_push_rejoined(struct session *session, bool same_incarnation, bool same_epoch);
void session_push_peer(struct session *session,
                       uint32_t member); /* its connection is (again) open */
void session_push_lost(struct session *session, uint32_t member);
void session_push_sent(struct session *session, const struct session_event *event);
void session_push_place(struct session *session, const struct message_place *place);
void session_push_receipt(struct session *session, const struct message_receipt *receipt);
struct name session_name(const struct session *session, uint64_t sequence); /* of a push */
void session_describe(struct session *session, struct session_push *push);  /* the best way */
void session_describe_again(struct session *session, const struct session_push *push);
void session_push_admitted(struct session *session, const struct session_event *event);
void session_push_tick(struct session *session);
void session_pull_start(struct session *session, const struct session_pull_request *request,
                        bool after);
/* Push `sequence` has no number any more: the pull that rides with it goes on alone. */
void session_pull_alone(struct session *session, uint64_t sequence);
/* What the boxes of the pull are in the member's range: at most PIECES_MAX pieces; how many. */
uint32_t session_pull_pieces(const struct session *session, uint32_t member, struct piece *pieces);
/* session_pull_boxes.c: bytes that the member owes (as they lie, and as they travel); where its
 * next body belongs. */
uint64_t session_pull_owed(const struct session *session, uint32_t member, uint64_t *wire);
uint64_t session_pull_room(struct session *session, uint32_t member, uint64_t *offset);
void session_pull_peer(struct session *session, uint32_t member);
void session_pull_lost(struct session *session, uint32_t member);
void session_pull_offered(struct session *session, const struct session_event *event);
void session_pull_landed(struct session *session, const struct session_event *event);
void session_pull_tick(struct session *session);
void session_pull_anew(struct session *session); /* another timeline: nothing of before counts */
int64_t session_pull_next(const struct session *session);

#endif
