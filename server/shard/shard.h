/* The shard's core: a range of the model, its optimizer state, its waiting gradients. Applies the
 * log in order; decides nothing about order. Events in, actions out; no IO, no clock, no threads,
 * no allocation after the arena is made.
 *
 *   shard.c   the step function
 *   slots.c   gradients: generations, chunks in flight, closing
 *   params.c  parameter slots: whole, ahead, being written, pinned
 *   ahead.c   the next step is made while its gradient lands, by a guess
 *   warm.c    going on in the arena of a killed process; journal.c: an event happens whole or not
 *   shard_epoch.c  whom it follows, and what it tells a new coordinator
 *   arena.c   where everything lies: one piece of memory, offsets only, so that it can be shared
 *             memory and outlive the process. struct shard lies at its start and holds no pointer.
 *
 * The shell moves bytes (transport), computes (device) and carries messages (control). */
#ifndef GRADWEIR_SERVER_SHARD_SHARD_H
#define GRADWEIR_SERVER_SHARD_SHARD_H

#include "common/arithmetic.h"
#include "common/heads.h"
#include "common/ledger.h"
#include "common/message.h"
#include "common/model.h"

#include <stdbool.h>

struct shard;

struct shard_options {
    struct message_member member;       /* what the coordinator said */
    uint32_t epoch;                     /* in which it said so; 0 counts as 1 */
    struct optimizer_options optimizer; /* epsilon, dampening, …: ledger.h */
    uint32_t sessions_max;
    uint32_t pulls_max;       /* outstanding PULLs over all sessions */
    uint64_t chunk_bytes;     /* largest body of a PARAMETERS reply */
    uint64_t tile_elements;   /* of one STEP or AVERAGE action, whole blocks; 0: what suits one
                                 thread. An arena keeps what it was made with */
    int64_t pull_patience_ns; /* a pull for a version that does not come gets GONE; a late reader is
                                 hung up */
    uint64_t ahead;      /* ranges of at least so many elements are stepped ahead, where the law
                            allows it: ahead.c; 0: none is. Not where a device keeps floats of
                            its own */
    uint32_t stripe_max; /* 0: LAW_STRIPE_MAX; else as in a run that is replayed */
    bool keep;           /* give KEEP for FIRST and every ADMIT (recording) */
    bool warm;   /* the arena outlives its process: changes are journaled and tiles can be redone */
    bool digest; /* warm: keep digests of what lasts; shard_resume: look at them, if kept */
};

/* The tile_elements that suit so many threads. */
uint64_t shard_tile(uint32_t threads);

/* Memory, with its arithmetic as lines for people. ERR_INVALID when it cannot be counted in 64
 * bits. */
gradweir_status shard_arena_bytes(const struct model *model, const struct law_settings *law,
                                  const struct shard_options *options, uint64_t *bytes, char *text,
                                  size_t size);

/* Lays out a fresh, zeroed, 64-byte aligned arena. The model is read now and not kept. */
gradweir_status shard_init(void *arena, uint64_t bytes, const struct model *model,
                           const struct law_settings *law, const struct shard_options *options);

/* Goes on in the arena of a warm shard whose process was killed, at whatever instruction. What is
 * not finished is undone (an event) or redone (a tile); README.md says how. options: as they were
 * then, of member only job and shard (the rest is in the arena: shard_member).
 *
 * The caller holds the arena alone: the other process is dead. Everything that process held is
 * dropped here: peers, sessions, PULLs, pins, bodies in flight, jobs. So a shell starts afresh too
 * and drops on its side: every token it was given (takes, replies, scans, tiles) together with
 * events and actions that wait for their turn, all data-plane connections, the control connection
 * and the device's jobs; it enlists with a new instance, cold = 0, and log index and hash of
 * shard_ledger. The core says LOGGED, LANDED, STEPPED and SUMS again at MEMBER, and asks again for
 * SCAN and STEP at the next event: shard_next is due at once. Peers' numbers may be used again.
 *
 * A body that was under way when the process died may still land for a moment (the kernel or a
 * network card writes it): its slot takes all chunks anew, and is not FREED for 250 ms.
 *
 * text gets what was found, in a line for people. ERR_MISMATCH names what differs (another job,
 * shard, build or setting); ERR_CORRUPT says what cannot be right, or is not as it was left
 * (options.digest), or that the process was killed five times at one and the same place; nothing is
 * lost by trying. */
gradweir_status shard_resume(void *arena, uint64_t bytes, const struct law_settings *law,
                             const struct shard_options *options, char *text, size_t size);

/* False: shard_init has not ended here, nobody has heard of this arena, and it may go. */
bool shard_arena_begun(const void *arena, uint64_t bytes);

const struct message_member *shard_member(const struct shard *shard);

/* The model's layout, as model_encode wrote it. */
const uint8_t *shard_layout(struct shard *shard, uint64_t *bytes);

enum shard_event_kind {
    SHARD_MESSAGE = 1, /* from the coordinator */
    SHARD_OFFERED, /* a head from a data-plane peer, with `length` bytes of body behind it (0: none)
                    */
    SHARD_LANDED,  /* the body of token is in its place, or is not (status) */
    SHARD_SENT,    /* the reply of token left, or did not (status) */
    SHARD_PEER_LOST, /* data-plane peer is gone; all its tokens have come back before */
    SHARD_DONE,      /* a device job (SCAN, AVERAGE, STEP) is done */
    SHARD_TICK
};

struct shard_event {
    enum shard_event_kind kind;
    int64_t now_ns;
    const struct message *message;
    uint64_t peer; /* the transport's number */
    const struct head_any *head;
    uint64_t offer, length;
    uint64_t
        portion; /* OFFERED: how long bodies to this peer are best, as transport_portion; 0: any
                  */
    uint64_t token;
    gradweir_status status;
    uint32_t crc;   /* LANDED: CRC32C of the body as it lies in the slot */
    bool measured;  /* LANDED: by shard_measure_body */
    uint64_t ahead; /* LANDED and measured: by which guess it was stepped on; 0: it was not */
    uint32_t largest_bits; /* LANDED and measured, DONE of SCAN: of the largest magnitude; bits of
                              Inf or NaN when there is one */
    uint64_t not_finite;   /* DONE of SCAN: first such element of the range, or UINT64_MAX */
    double sum_squares;    /* DONE of SCAN */
};

enum shard_action_kind {
    SHARD_SEND = 1, /* message to the coordinator */
    SHARD_REPLY,    /* head and `length` bytes at `offset` to peer; SENT with token comes back when
                       token != 0. The crc of a PARAMETERS head is the shell's to fill in: CRC32C of
                       the body, just before it leaves */
    SHARD_TAKE,     /* let the offered body move to `offset`; LANDED with token comes back, and
                       what shard_measure_body tells of it */
    SHARD_REFUSE,   /* throw the offered body away */
    SHARD_HANGUP,   /* end this peer's connection; PEER_LOST comes back */
    SHARD_SCAN,     /* measure `end` elements of `codec` at `offset`; DONE with token comes back */
    SHARD_AVERAGE,  /* window average of elements [begin, end) into shard_average, sums per block
                       into shard_sums; DONE */
    SHARD_STEP, /* optimizer on elements [begin, end) by shard_plan and shard_work; DONE with token
                 */
    SHARD_KEEP, /* write `length` bytes at `offset` to the recording as the body of log index
                   `token`, before the next action is carried out */
    SHARD_CONTENT, /* after a SEALED: send shard_content() to the coordinator as PAGEs of
                      CONTENT_SEALED, with message's epoch and timeline */
    SHARD_SAY      /* a line for people, in message.denied.text */
};

struct shard_action {
    enum shard_action_kind kind;
    uint64_t peer, offer, token;
    uint64_t offset, length;     /* bytes of the arena */
    uint64_t begin, end;         /* elements of the range */
    enum arithmetic_codec codec; /* SCAN */
    struct head_any head;
    struct message message;
};

struct shard_actions {
    struct shard_action *items;
    uint32_t count, max;
};

uint32_t shard_actions_max(const struct shard *shard);
void shard_step(struct shard *shard, const struct shard_event *event,
                struct shard_actions *actions);
int64_t shard_next(const struct shard *shard); /* when SHARD_TICK is due; INT64_MAX: none */

/* A pointer into the arena for an action's offset. */
void *shard_address(struct shard *shard, uint64_t offset);

/* What AVERAGE and STEP actions work on: borrowed until their DONE. States are those of the tile
 * under way, and good for that one only. */
const struct arithmetic_plan *shard_plan(struct shard *shard);
void shard_work(struct shard *shard, struct arithmetic_work *work);
float *shard_average(struct shard *shard);
double *shard_sums(struct shard *shard); /* as shard_sums.c says */

/* The second half of a TAKE to `offset` that went well, while the body is still in the cache:
 * CRC32C and, of a chunk, sums of squares (into the arena) and the largest magnitude. `landed` has
 * its token and length, and gets crc, measured, largest_bits and ahead; it is told to the core
 * before anything else is. A gradient whose chunks were all measured needs no SCAN. Where the core
 * guesses that this gradient makes the next step, that is made of the chunk on the way: ahead.c. */
void shard_measure_body(struct shard *shard, const struct arithmetic *arithmetic, uint64_t offset,
                        struct shard_event *landed);

/* The whole of a TAKE to `offset` of a body that lies at `from`, in one pass: the copy, and what
 * shard_measure_body does. What it tells is of the copy, also when somebody else writes to `from`
 * meanwhile. */
void shard_copy_body(struct shard *shard, const struct arithmetic *arithmetic, uint64_t offset,
                     const void *from, struct shard_event *landed);

/* The second half of an AVERAGE job: the sum of squares of each of the model's blocks within
 * [begin, end) of the average, into shard_sums; and the average's digests. It may be done stretch
 * by stretch and by several threads at once (device_behind), and so may the next. */
void shard_measure_average(struct shard *shard, const struct arithmetic *arithmetic, uint64_t begin,
                           uint64_t end);

/* The second half of a STEP job: the digests of what it wrote (options.digest), and the sums that
 * LAMB's round needs of [begin, end). begin is a block border. */
void shard_measure_update(struct shard *shard, const struct arithmetic *arithmetic, uint64_t begin,
                          uint64_t end);
bool shard_measures_update(const struct shard *shard); /* false: the step under way has none */

/* For a device that makes a job's sums by itself: where those of the AVERAGE or STEP job from
 * element `begin` on go, and the elements of their blocks. NULL: the job under way has none. What
 * is left to be done behind it is shard_digest_job, stretch by stretch; unless there are no
 * digests. */
struct shard_job_sums {
    double *average, *theta, *update;
    uint64_t block;
};
void shard_job_sums(struct shard *shard, uint64_t begin, struct shard_job_sums *sums);
void shard_digest_job(struct shard *shard, uint64_t begin, uint64_t end);
bool shard_digests(const struct shard *shard);

/* Whether steps are made ahead here, where a gradient can be guessed to be the next. */
bool shard_guesses(const struct shard *shard);

/* Where the floats of jobs lie, bytes of the arena: gradients, then parameters, then states and an
 * average up to `partials`, then a window's partial sums up to `end`. */
struct shard_floats {
    uint64_t slots, slot_stride;
    uint64_t parameters, parameter_bytes; /* bytes: the floats of one slot, without MOMENTS */
    uint64_t partials, end;
};
void shard_floats(const struct shard *shard, struct shard_floats *floats);

/* A waiting gradient's bytes: the range in the job's codec, then the MOMENTS tail. For replay,
 * which puts recorded bodies there itself. */
void *shard_slot(struct shard *shard, uint32_t slot, uint64_t *bytes);

/* The same of first parameters, which are float32 in any job. */
void *shard_first(struct shard *shard, uint32_t slot, uint64_t *bytes);

/* One of the newest member.ring records of its log; NULL: not kept, or not logged yet. */
const struct record *shard_record(const struct shard *shard, uint64_t index);

/* Whether what lies at an action's offset is in a parameter slot: the same timeline, version and
 * place are then the same bytes. */
bool shard_is_parameters(const struct shard *shard, uint64_t offset);

const struct ledger *shard_ledger(const struct shard *shard);

/* What ENLIST says but for job, index, instance and address, which the shell knows. NULL: there is
 * no memory yet. */
void shard_enlist(const struct shard *shard, struct message_enlist *enlist);

/* The highest epoch it has promised to follow: what ENLIST says. */
uint32_t shard_promise(const struct shard *shard);

/* What it holds, for the coordinator that has sealed it (common/sealed.h): at most
 * shard_content_max bytes; tells how many. */
size_t shard_content_max(const struct shard *shard);
size_t shard_content(struct shard *shard, uint8_t *bytes, size_t room);

struct shard_figures {
    uint64_t logged, applied, version, whole;
    uint64_t bytes_in, bytes_out; /* floats landed and replied */
    uint64_t heads_dropped;       /* refused: wrong session, epoch, generation, geometry */
    uint64_t messages_dropped;    /* of another epoch than the one it follows */
    uint64_t checksum_failures;
    uint64_t tiles_ahead; /* of steps, that were made while their gradient landed */
    uint32_t sessions,
        landing; /* landing: slots with something in flight or landed and not logged */
    uint32_t pulls_waiting, pinned;
    uint64_t arena_bytes;
};
void shard_figures(const struct shard *shard, struct shard_figures *figures);

/* Newest version stepped here, and its parameters (borrowed until the next step). */
const float *shard_parameters(struct shard *shard, uint64_t *version);

/* As order_plant. */
bool shard_plant(struct shard *shard, const char *name);

#endif
