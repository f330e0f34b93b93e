/* The data plane's heads: 64 bytes, little-endian, before every body of floats between worker and
 * shard.
 *
 *   worker                                   shard
 *     HELLO   pass, worker, incarnation  -->          opens a session on this endpoint
 *         <-- WELCOME session | DENY status
 *     CHUNK   slot, generation, …  + body -->         straight into the slot
 *     PULL    ticket, version  [+ pieces] -->
 *     PART    as CHUNK, of a rank's share -->         straight into the slot, rising offsets
 *     DESCRIBE  what the CHUNKs are       -->         on to the coordinator
 *         <-- RECEIPT sequence, version, the next place
 *         <-- PARAMETERS ticket, version + body (one or more), or GONE ticket, newest
 *
 * A session binds job, protocol level, timeline, worker, incarnation and pass once, so the others
 * need not repeat them. */
#ifndef GRADWEIR_COMMON_HEADS_H
#define GRADWEIR_COMMON_HEADS_H

#include <assert.h>
#include <stdint.h>

enum head_kind {
    HEAD_HELLO = 1,
    HEAD_WELCOME = 2,
    HEAD_DENY = 3,
    HEAD_CHUNK = 4,
    HEAD_PULL = 5,
    HEAD_PARAMETERS = 6,
    HEAD_GONE = 7,
    HEAD_PART = 8,
    HEAD_DESCRIBE = 9,
    HEAD_RECEIPT = 10
};

enum { HEAD_BYTES = 64 };

/* The numbers of enum arithmetic_codec. Of CHUNK and PART: the job's gradient_dtype, but float32
 * for first parameters, whatever that is. */
enum head_dtype { HEAD_FLOAT32 = 0, HEAD_BFLOAT16 = 1, HEAD_FLOAT16 = 2, HEAD_INT8 = 3 };

/* The first 8 bytes are common to all kinds. */
struct head_any {
    uint8_t kind;
    uint8_t dtype;
    uint16_t flags;
    uint32_t session;
    uint8_t rest[56];
};

struct head_hello {
    uint8_t kind;
    uint8_t level; /* PROTOCOL_VERSION */
    uint16_t flags;
    uint32_t worker;
    uint32_t epoch;
    uint32_t timeline;
    uint64_t job;
    uint64_t incarnation;
    uint8_t pass[16];
    uint8_t rank, ranks; /* of a group; ranks 0: none */
    uint8_t zero[14];
};

struct head_welcome { /* and DENY */
    uint8_t kind;
    uint8_t level;
    uint16_t flags;
    uint32_t session;
    int32_t status; /* DENY: a gradweir_status; AGAIN: the pass is not here yet, say HELLO again */
    uint32_t epoch;
    uint64_t version; /* newest whole here */
    uint8_t zero[40];
};

enum { PART_LAST = 1 }; /* flags of PART: this rank has nothing more for this shard */

/* flags of CHUNK: the digest is there. Without it the digest is 0: the gradient's end is not made
 * yet while its begin is on its way. The last chunk of a range has it. */
enum { CHUNK_SEALED = 1 };

struct head_chunk { /* and PART, a piece of a rank's share */
    uint8_t kind;
    uint8_t dtype;
    uint16_t flags;
    uint32_t session;
    uint32_t epoch;
    uint32_t slot;
    uint64_t generation;
    uint64_t sequence;
    uint64_t basis;  /* PART: bytes of this rank's share that went to this shard before */
    uint64_t digest; /* of the whole gradient, all shards, or 0: CHUNK_SEALED; PART: of the rank's
                        share */
    uint64_t offset; /* bytes within this shard's range */
    uint32_t length; /* bytes of the body */
    uint32_t crc;    /* CRC32C of the body */
};

/* Flags of PULL. Without any: the version that is named or a newer one, all of the range (offset
 * and length) as float32, waiting for it within pull_patience. */
enum {
    PULL_EXACT = 1,  /* exactly this version, or GONE */
    PULL_AFTER = 2,  /* not EXACT: nor before the log has the verdict of this session's gradient
                        `after`; when that makes a step due, not before that step is whole */
    PULL_PIECES = 4, /* a body follows: which pieces of the range are wanted (common/pieces.h);
                        dtype BFLOAT16 is for these only */
    PULL_NEWER = 8   /* newer than this version, or GONE at once: nothing newer is whole */
};

struct head_pull {
    uint8_t kind;
    uint8_t dtype;
    uint16_t flags;
    uint32_t session;
    uint32_t epoch;
    uint32_t timeline;
    uint64_t ticket; /* the worker's number; comes back as it is */
    uint64_t version;
    uint64_t offset; /* bytes within this shard's range (tail of MOMENTS included); PIECES: 0 */
    uint64_t length; /* bytes; UINT64_MAX: to the end. PIECES: bytes of all of them, as they lie */
    uint64_t after;  /* AFTER: sequence of a gradient that this worker has pushed; else 0 */
    uint32_t pieces; /* PIECES: how many the body holds */
    uint32_t crc;    /* PIECES: CRC32C of the body */
};

struct head_parameters { /* and GONE: no body, version is the newest whole */
    uint8_t kind;
    uint8_t dtype;
    uint16_t flags; /* PULL_PIECES: of such a PULL */
    uint32_t session;
    uint32_t timeline;
    uint32_t crc;
    uint64_t ticket;
    uint64_t version;
    uint64_t offset; /* of this body within what was asked for, bytes as they travel */
    uint64_t length; /* bytes of this body; of PIECES no body holds more than one */
    uint64_t total;  /* bytes of all bodies of this ticket */
    uint64_t digest; /* unused: 0 */
};

/* The message of that name, by way of one shard: its name is the session's and its sequence, its
 * layout the shard's, its purpose a gradient. */
struct head_describe {
    uint8_t kind;
    uint8_t zero;
    uint16_t flags;
    uint32_t session;
    uint32_t epoch;
    uint32_t slot;
    uint64_t generation;
    uint64_t sequence;
    uint64_t basis;
    uint64_t digest;
    uint64_t samples;
    double norm;
};

/* The message of that name, of an ADMITTED gradient; by the shard that brought its DESCRIBE. */
struct head_receipt {
    uint8_t kind;
    uint8_t zero;
    uint16_t next; /* how many sequences on the next place is for; 0: there is none */
    uint32_t session;
    uint32_t epoch;
    uint32_t staleness;
    uint64_t sequence;
    uint64_t index;
    uint64_t version;
    uint64_t whole;
    uint64_t next_generation;
    uint32_t next_slot;
    float weight;
};

static_assert(sizeof(struct head_describe) == HEAD_BYTES, "heads are 64 bytes");
static_assert(sizeof(struct head_receipt) == HEAD_BYTES, "heads are 64 bytes");
static_assert(sizeof(struct head_any) == HEAD_BYTES, "heads are 64 bytes");
static_assert(sizeof(struct head_hello) == HEAD_BYTES, "heads are 64 bytes");
static_assert(sizeof(struct head_welcome) == HEAD_BYTES, "heads are 64 bytes");
static_assert(sizeof(struct head_chunk) == HEAD_BYTES, "heads are 64 bytes");
static_assert(sizeof(struct head_pull) == HEAD_BYTES, "heads are 64 bytes");
static_assert(sizeof(struct head_parameters) == HEAD_BYTES, "heads are 64 bytes");

#endif
