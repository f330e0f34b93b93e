/* The control plane's messages as structs. wire.c turns them into MessagePack and back; PROTOCOL.md
 * tells the story.
 *
 * Three parties: workers (and readers, which only pull), shards, and the coordinator in the middle.
 * Every message goes to or comes from the coordinator; workers and shards exchange floats only
 * (heads.h). Each names epoch and timeline, even while both are 1, so that a late message can be
 * told by number. All fields of a kind are always sent.
 *
 * Several messages may share one frame; they are handled in order. Text is NUL-terminated within
 * its array. */
#ifndef GRADWEIR_COMMON_MESSAGE_H
#define GRADWEIR_COMMON_MESSAGE_H

#include "common/record.h"
#include "common/swap.h"

enum {
    PROTOCOL_VERSION = 1, /* the newest we speak */
    PROTOCOL_OLDEST = 1,  /* the oldest we still understand */
    PROTOCOL_SERVERS = 2, /* among servers: raise it when they say other things to one another, or
                             make other bits of a record; all of a job must have the same */
    ADDRESS_MAX = 80,     /* "[ipv6]:port" and its NUL */
    NONCE_BYTES = 16,
    TEXT_MAX = 512,
    RING_MAX = 256,         /* newest records that a member keeps */
    PAGE_BYTES_MAX = 32768, /* of a long content that travels as numbered pages */
    CONTENT_BYTES_MAX = 64 << 20
};

/* X(KIND, number): numbers are the wire's and never change. */
#define MESSAGE_MAP(X)                                                                             \
    X(JOIN, 1)      /* worker: let me take part */                                                 \
    X(JOINED, 2)    /* coordinator: you do, under this incarnation */                              \
    X(DENIED, 3)    /* coordinator: no, because */                                                 \
    X(WANT, 4)      /* either: send me this content (LAYOUT, STATUS) */                            \
    X(PAGE, 5)      /* either: one page of a content */                                            \
    X(ASK, 6)       /* worker: I need room for this sequence */                                    \
    X(PLACE, 7)     /* coordinator: room, never order */                                           \
    X(DESCRIBE, 8)  /* worker: what I am sending */                                                \
    X(RECEIPT, 9)   /* coordinator: what became of it */                                           \
    X(BYE, 10)      /* worker: I leave in order; coordinator: farewell */                          \
    X(REJOIN, 11)   /* coordinator: I do not know this connection; JOIN again with your nonce */   \
    X(STOP, 12)     /* coordinator: the job ends in order */                                       \
    X(TUNE_ASK, 13) /* anyone allowed: change a live setting */                                    \
    X(TUNED, 14)    /* coordinator: done, or why not */                                            \
    X(RANK, 15)     /* worker: my next JOIN is that of one rank of a group */                      \
    X(SWAP, 16)     /* rank: these bytes of mine for all ranks, and theirs for me */               \
    X(SWAPPED, 17)  /* coordinator: those of one rank, now that all are here; or why not */        \
    X(CALLED, 18)   /* coordinator: ranks of your group want to come in */                         \
    X(ENLIST, 20)   /* shard: here I am */                                                         \
    X(MEMBER, 21)   /* coordinator: you are member K of N; a MODEL page stream follows */          \
    X(READY, 22)    /* shard: memory is there for this layout */                                   \
    X(ENTRY, 23)    /* coordinator: admit this worker's data-plane sessions with this pass */      \
    X(RECORD, 24)   /* coordinator: one entry of the log */                                        \
    X(LOGGED, 25)   /* shard: my log reaches to here */                                            \
    X(LANDED, 26)   /* shard: a gradient's range is complete here */                               \
    X(CLOSE, 27)    /* coordinator: this use of a slot is over */                                  \
    X(FREED, 28)    /* shard: nothing touches that slot any more */                                \
    X(STEPPED, 29)  /* shard: this version is computed here */                                     \
    X(SUMS, 30)     /* shard: partial sums of a step's round */                                    \
    X(WHOLE, 31)    /* coordinator: every shard has this version */                                \
    X(PULSE, 32)    /* shard: my progress counters */                                              \
    X(SEAL, 33)   /* coordinator: promise to follow nobody below this epoch, say what you hold */  \
    X(SEALED, 34) /* shard: promised, a SEALED page stream follows; or somebody else reigns */     \
    X(MOVED, 35)  /* coordinator: a shard's process is another one now; connect to it anew */      \
    X(REPORT, 40) /* worker: numbers for the operator's page */

enum message_kind {
#define MESSAGE_ENTRY(name, number) MESSAGE_##name = number,
    MESSAGE_MAP(MESSAGE_ENTRY)
#undef MESSAGE_ENTRY
};

enum content {
    CONTENT_LAYOUT = 1,
    CONTENT_STATUS = 2,
    CONTENT_SETTINGS = 3,
    CONTENT_SEALED = 4,
    CONTENT_PARTS = 5
};

/* RANK, in JOIN only: one rank of a group, which is a worker. */
enum role { ROLE_WORKER = 1, ROLE_READER = 2, ROLE_RANK = 3 };

struct member {
    char address[ADDRESS_MAX]; /* data plane, "ip:port" */
    uint64_t first;            /* element of the model where its range begins */
    uint64_t count;            /* elements; 0 is allowed */
};

struct message_join {
    uint32_t protocol_oldest, protocol_newest;
    uint64_t job; /* hash of the job's name; 0 joins whatever runs there */
    char identity[IDENTITY_MAX];
    uint8_t nonce[NONCE_BYTES]; /* the same nonce gets the same incarnation again */
    uint32_t role;
    uint64_t layout_hash; /* 0: tell me yours */
    uint32_t outstanding_max;
};

/* Said before JOIN over the same connection. The ranks of a group JOIN with one identity and one
 * nonce, and are one worker once all are there and their parts (CONTENT_PARTS, asked for by WANT)
 * tile the model. */
struct message_rank {
    uint32_t rank, ranks;
    uint64_t incarnation; /* of which it was told; 0: of none yet */
    uint64_t
        instance; /* of this process, by chance: another one knows nothing of what is under way */
};

struct message_joined {
    uint64_t job;
    uint32_t worker;
    uint64_t incarnation;
    uint64_t version; /* newest whole */
    uint32_t first;   /* 1 when the first parameters are there */
    uint64_t layout_hash;
    uint64_t last_sequence; /* of this incarnation: the newest with a verdict */
    uint32_t outstanding_max;
    uint8_t pass[NONCE_BYTES]; /* opens data-plane sessions */
    uint64_t chunk_bytes;
    uint32_t gradient_dtype; /* enum arithmetic_codec: in which gradients are pushed */
    double magnitude_max;    /* a larger element is NOT_FINITE */
    uint32_t members_count;
    struct member members[MEMBERS_MAX];
};

struct message_denied {
    int32_t status; /* a gradweir_status */
    char text[TEXT_MAX];
};

struct message_want {
    uint32_t content;
};

struct message_page {
    uint32_t content;
    uint32_t page, pages;
    uint64_t total; /* bytes of the whole content */
    uint32_t bytes; /* of this page; the data is borrowed: until the event is handled, or the action
                       carried out */
    const uint8_t *data;
};

struct message_ask {
    struct name name;
};

struct message_place {
    struct name name; /* which ask this answers; a steady worker gets it with its RECEIPT instead */
    uint32_t slot;
    uint64_t generation;
};

#define SAMPLES_MAX (UINT64_C(1) << 53) /* of a gradient, which has one at least */

struct message_describe {
    struct name name;
    uint32_t slot;
    uint64_t generation;
    uint32_t purpose; /* enum purpose: gradient or first parameters */
    uint64_t basis;
    uint64_t samples; /* of a gradient 1 .. SAMPLES_MAX; anything else is refused as MISMATCH */
    double norm;      /* over the whole gradient, before any clipping here */
    uint64_t layout_hash;
    uint64_t digest; /* of the whole body, model_digest's rule */
};

struct message_receipt {
    struct name name;
    uint32_t verdict; /* enum verdict */
    uint64_t index;   /* of its record in the log; 0 for QUEUE_FULL, which has none */
    uint64_t version; /* at admission */
    uint64_t staleness;
    float weight;     /* in the step that first reads it, before normalisation; 0 when refused */
    uint64_t durable; /* log index covered by a whole cut */
    uint64_t detail;  /* NOT_FINITE: element of the model; MISMATCH: what was expected, or the
                         samples that make no sense; else 0 */
    uint64_t whole;   /* newest whole version, for the worker's information */
    uint64_t next_sequence; /* a PLACE that comes along; 0: none */
    uint32_t next_slot;
    uint64_t next_generation;
};

struct message_bye {
    struct name name; /* sequence unused */
};

enum { REPORT_MAX = 8, REPORT_NAME_MAX = 32 };

struct report_number {
    char name[REPORT_NAME_MAX];
    double value;
};

/* All of a worker's numbers, each time. */
struct message_report {
    struct name name; /* sequence unused */
    uint32_t numbers_count;
    struct report_number numbers[REPORT_MAX];
};

struct message_tune_ask {
    char setting[64];
    char value[64];
};

struct message_tuned {
    int32_t status;
    uint64_t index;
    char text[TEXT_MAX];
};

struct message_enlist {
    uint32_t protocol_oldest, protocol_newest; /* PROTOCOL_SERVERS, both */
    uint64_t job;
    uint32_t shard; /* its index, from its settings */
    uint8_t instance[NONCE_BYTES];
    char address[ADDRESS_MAX]; /* data plane, as workers reach it */
    uint32_t cold;             /* 1: it has no memory yet */
    uint32_t epoch;       /* its promise: it follows nobody lower; 0: it has promised nothing */
    uint64_t index, hash; /* of its log */
};

/* What a shard needs before records can come; the layout follows as pages, the job's settings
 * travel in the MAP record. */
struct message_member {
    uint64_t job;
    uint32_t shard, members;
    uint64_t first, count; /* its range, in elements */
    uint32_t moments;      /* 1: this member also keeps the MOMENTS tail */
    uint32_t slots;
    uint32_t parameter_slots;
    uint32_t ring; /* newest records that it keeps, for a coordinator that comes after this one */
    uint64_t layout_hash;
    uint32_t gradient_dtype;       /* enum arithmetic_codec */
    uint8_t instance[NONCE_BYTES]; /* of the coordinator: a member that holds nothing yet promises
                                      to follow it by taking its memory */
};

struct message_ready {
    uint32_t shard;
    uint64_t layout_hash;
    uint64_t bytes; /* of its arena */
};

struct message_entry {
    uint32_t worker;
    uint64_t incarnation;
    uint8_t pass[NONCE_BYTES];
};

struct message_logged {
    uint64_t index, hash;
};

struct message_landed {
    uint32_t slot;
    uint64_t generation;
    struct name name;
    uint64_t digest;
    uint32_t intact; /* 0: a checksum or the chunks' geometry was wrong */
    uint64_t
        not_finite;  /* first element (of the model) that is not finite; UINT64_MAX when all are */
    float magnitude; /* largest finite magnitude */
    double sum_squares; /* of this range, float64 */
};

struct message_close {
    uint32_t slot;
    uint64_t generation;
    uint64_t after; /* log index that must be applied first: a step may still read the slot */
};

struct message_freed {
    uint32_t slot;
    uint64_t generation;
};

struct message_stepped {
    uint64_t version;
};

enum { SUM_NODES_MAX = 128 };

/* Partial sums over the fixed tree of blocks: the maximal aligned subtrees of this shard's blocks,
 * left to right; of which sums, sums.h tells. */
struct message_sums {
    uint64_t version;
    uint32_t round;
    uint64_t first_block, blocks; /* of the shard */
    uint64_t first_node;          /* of those that follow, counted over all the shard's sums */
    uint32_t nodes_count;
    double nodes[SUM_NODES_MAX];
};

struct message_whole {
    uint64_t version;
};

struct message_pulse {
    uint64_t beat; /* grows while the shard's loop turns */
    uint64_t logged, applied, version;
    uint64_t bytes_in, bytes_out;
    uint32_t sessions;
    uint32_t waiting;   /* enum: what the next step waits for; 0 nothing, 1 parameter slot pinned, 2
                           SUMMED */
    uint64_t step_ns;   /* time of the last whole step */
    uint64_t dropped;   /* heads refused since start */
    char transport[32]; /* what peers use: "posix", "tcp", "posix+tcp", "none"; where a GPU
                           computes, " resident" or " mapped": where its floats are */
};

/* The epoch is the message's own. */
struct message_seal {
    uint8_t instance[NONCE_BYTES]; /* of the coordinator's process: two may try one epoch */
};

/* The message's epoch and this instance say whom the shard follows. When they are those of SEAL, a
 * CONTENT_SEALED follows as pages (sealed.h); else the SEAL was refused. */
struct message_sealed {
    uint8_t instance[NONCE_BYTES];
    uint64_t index, hash; /* of its log */
};

struct message_moved {
    uint32_t shard;
    char address[ADDRESS_MAX];
};

struct message {
    uint32_t kind; /* enum message_kind */
    uint32_t epoch;
    uint32_t timeline;
    union {
        struct message_join join;
        struct message_rank rank;
        struct message_swap swap;
        struct message_swapped swapped;
        struct message_called called;
        struct message_joined joined;
        struct message_denied denied;
        struct message_want want;
        struct message_page page;
        struct message_ask ask;
        struct message_place place;
        struct message_describe describe;
        struct message_receipt receipt;
        struct message_bye bye;
        struct message_report report;
        struct message_tune_ask tune_ask;
        struct message_tuned tuned;
        struct message_enlist enlist;
        struct message_member member;
        struct message_ready ready;
        struct message_entry entry;
        struct record record;
        struct message_logged logged;
        struct message_landed landed;
        struct message_close close;
        struct message_freed freed;
        struct message_stepped stepped;
        struct message_sums sums;
        struct message_whole whole;
        struct message_pulse pulse;
        struct message_seal seal;
        struct message_sealed sealed;
        struct message_moved moved;
    };
};

/* Bytes of a message that count, from its start; not of a PAGE, whose data lie elsewhere. */
size_t message_used(const struct message *message);

/* The kind's name for people, "?" for a number that is none. */
const char *message_name(uint32_t kind);

#endif
