/* Where a shard's floats are and who computes with them: the seam between the shard and its memory.
 * Two kinds of work: memory (alloc, free) at start and end only, and jobs. A job is given with a
 * tag, goes into a bounded queue, and poll tells when it is done; jobs of one device are carried
 * out in the order given. The device works on the pointers of each call: a shard whose memory is
 * one arena hands out base + offset, and what lies in foreign memory (shared memory mapped by the
 * shard) works as well on cpu; device_info says whether it does. */
#ifndef GRADWEIR_COMMON_DEVICE_H
#define GRADWEIR_COMMON_DEVICE_H

#include "common/arithmetic.h"
#include "common/status.h"

#define DEVICE_JOBS_MAX    64
#define DEVICE_THREADS_MAX 64

struct device_options {
    const char *simd; /* cpu: scalar, avx2, avx512; NULL: the best there is */
    uint32_t ordinal; /* cuda: which GPU */
    size_t tile; /* elements one poll carries out at most, rounded up to a block; 0: a default near
                    1 ms */
    uint32_t
        threads;  /* cpu: that compute, the caller's among them; 0: 1. At most DEVICE_THREADS_MAX */
    bool crowded; /* cpu: threads outnumber cores, so nobody spins */
};

struct device_info {
    bool host_memory;    /* pointers may be any memory of this process; else only what alloc gave
                            and what is pinned; copy takes any memory all the same */
    bool registers_host; /* the transport may register alloc'ed memory as host memory */
    size_t alignment;    /* of what alloc gives, bytes */
    char text[96];       /* for the log: "cpu avx512" */
};

/* Where memory lies, as seen from a device. HOST: any memory of this process that is not the
 * device's. OWN: the device's, and only its jobs may touch it. BOTH: jobs and processor may.
 * FOREIGN: another device's of the same kind. */
enum device_place { DEVICE_PLACE_HOST, DEVICE_PLACE_OWN, DEVICE_PLACE_BOTH, DEVICE_PLACE_FOREIGN };

/* from and to must not overlap. Either side may be host memory. */
struct device_copy {
    const void *from;
    void *to;
    size_t bytes;
};

/* What follows the arithmetic of a stretch of whole blocks (the job's last may be short), while its
 * floats are in the cache (cpu), or once the job's are all there: from whatever thread has done it,
 * and for several stretches at once. Memory of the host only, pinned or not (echoes too). call
 * NULL: nothing does. */
struct device_behind {
    void (*call)(void *context, uint64_t begin, uint64_t end);
    void *context;
};

/* Widen n elements that start at a block border, and measure them on the way. to NULL: only
 * measure. */
struct device_decode {
    enum arithmetic_codec codec;
    const void *from;
    float *to;
    size_t n;
    double *sums; /* host memory, arithmetic_blocks(n) numbers: sum of squares per block */
};

/* n floats from a block border on into the bytes that travel, and what is asked of them on the way:
 * sums of squares per block of what was said, as measure has them, and checksums. */
struct device_encode {
    enum arithmetic_codec codec;
    const float *from; /* NULL: float32 that lies in `to` already, to be measured and summed */
    float *rest;       /* error feedback (arithmetic.encode_rest), not of float32; NULL: none */
    void *to;
    size_t n;
    double *sums;   /* host memory, arithmetic_blocks(n) numbers */
    size_t piece;   /* elements of a checksum, a multiple of 256 (int8's blocks) */
    uint32_t *crcs; /* host memory: the CRC32C of each piece's bytes; the last may be short */
};

/* Where what a step writes is written too, before anything follows it: base pointers as its work's,
 * of memory of the host, pinned or not. So a shard whose arrays are a device's own memory has those
 * on the host that answer others, or outlive the process. NULL: nowhere. */
struct device_echo {
    float *parameters;
    float *state[ARITHMETIC_STATES_MAX];
};

/* Error feedback of a push that is refused: what was sent of n elements from a block border on
 * comes back, rest += decode(sent). from: they were encoded from these, and that is undone: rest =
 * (rest + decode(sent)) - from, but where decode(sent) is not finite. */
struct device_give_back {
    enum arithmetic_codec codec;
    const void *sent;
    size_t n;
    const float *from; /* NULL: it is not undone */
    float *rest;
};

/* The window average of [begin, end) into average + begin (base pointer of the shard), and its sums
 * per `block` elements from begin on; begin is a block border and end > begin. plan is borrowed
 * until done. */
struct device_accumulate {
    const struct arithmetic_plan *plan;
    struct arithmetic_sources sources;
    float *average;
    float *echo; /* as a step's */
    size_t begin, end;
    double *sums; /* host memory, or NULL */
    size_t block; /* of sums: a divisor of ARITHMETIC_BLOCK; 0: that */
    struct device_behind behind;
};

/* One stretch of a step: plan, work and its arrays are borrowed until the job is done. For LAMB's
 * MOMENTS, update_sums and theta_sums get the sum of squares of update and parameter for each piece
 * (range cut at borders of `block` elements), in order, for the pieces of [begin, end); begin and
 * end are block borders or the shard's end. Else both are NULL, and so they are for who measures by
 * itself. */
struct device_step {
    const struct arithmetic_plan *plan;
    const struct arithmetic_work *work;
    struct device_echo echo;
    size_t begin, end;
    double *update_sums, *theta_sums;
    size_t block; /* of sums: a divisor of ARITHMETIC_BLOCK; 0: that */
    struct device_behind behind;
};

struct device_done {
    uint64_t tag;
    gradweir_status status; /* OK, or ERR_LOST: the device failed, and all that it holds is lost */
    uint32_t largest_bits;  /* decode, encode: of the largest magnitude; else 0 */
};

struct device_state; /* the backend's own */

/* All members are there in every backend. Calls come from one thread; threads of its own a backend
 * keeps to itself. Job calls: OK, the job is
 * queued (nothing has been done yet, whatever the backend); ERR_FULL, DEVICE_JOBS_MAX are in
 * flight: poll first; ERR_INVALID, what was asked makes no sense (reason says what) and nothing is
 * queued. */
struct device {
    const char *name;

    /* ERR_UNSUPPORTED when the machine has no such device or no such simd. */
    gradweir_status (*open)(const struct device_options *options, struct device_state **state);

    /* Jobs in flight are dropped; everything alloc'ed must have been freed. NULL is accepted. */
    void (*close)(struct device_state *state);

    void (*info)(const struct device_state *state, struct device_info *info);

    /* Zeroed, aligned memory that stays where it is until freed. bytes > 0. ERR_NO_MEMORY. */
    gradweir_status (*alloc)(struct device_state *state, size_t bytes, void **memory);

    /* memory and bytes as alloc had them; NULL is accepted. No job may still use it. */
    void (*free)(struct device_state *state, void *memory, size_t bytes);

    /* Where the byte at `pointer` lies. *ordinal: whose it is, of OWN and FOREIGN; else 0.
     * ERR_LOST.
     */
    gradweir_status (*locate)(struct device_state *state, const void *pointer,
                              enum device_place *place, uint32_t *ordinal);

    /* Lets jobs work on host memory in place, and copies from it and to it go without a detour: it
     * stays where it is, and cannot be paged out. Whole pages. ERR_NO_MEMORY, ERR_UNSUPPORTED; then
     * it is not pinned. unpin: as pin had them, once no job uses it; NULL is accepted. */
    gradweir_status (*pin)(struct device_state *state, void *memory, size_t bytes);
    void (*unpin)(struct device_state *state, void *memory, size_t bytes);

    gradweir_status (*copy)(struct device_state *state, uint64_t tag,
                            const struct device_copy *job);
    gradweir_status (*decode)(struct device_state *state, uint64_t tag,
                              const struct device_decode *job);
    gradweir_status (*encode)(struct device_state *state, uint64_t tag,
                              const struct device_encode *job);
    gradweir_status (*give_back)(struct device_state *state, uint64_t tag,
                                 const struct device_give_back *job);
    gradweir_status (*accumulate)(struct device_state *state, uint64_t tag,
                                  const struct device_accumulate *job);
    gradweir_status (*step)(struct device_state *state, uint64_t tag,
                            const struct device_step *job);

    /* Carries out at most one tile of work (cpu) or looks what has been done (others), and returns
     * within about 2 ms. Writes up to `room` finished jobs in the order they were given, and
     * returns how many. No job done and none in flight: 0. */
    size_t (*poll)(struct device_state *state, struct device_done *done, size_t room);

    /* Jobs given and not yet told by poll. A loop with any must poll again and not sleep for long.
     */
    size_t (*in_flight)(const struct device_state *state);
};

/* The backends, for the table in device.c; everybody else asks device_find. device_cuda is defined
 * by gpu/ in builds with GRADWEIR_CUDA. */
extern const struct device device_cpu, device_cuda;

/* The backend called name (cpu, cuda), or NULL when this build has none of that name. */
const struct device *device_find(const char *name);

/* The i-th backend of this build, NULL past the last. */
const struct device *device_at(size_t i);

/* For backends: whether these make sense. ERR_INVALID says what does not. */
gradweir_status device_check_encode(const struct device_encode *encode);
gradweir_status device_check_give_back(const struct device_give_back *give_back);

/* Elements of a block of sums: as asked, or ARITHMETIC_BLOCK for 0. 0: no divisor of that. */
size_t device_block(size_t asked);

/* The piece (range cut at borders of `block` elements) that begins at `at` and ends at `end` at the
 * latest: what a backend walks for LAMB. False when there is none. */
bool device_piece(const struct arithmetic_work *work, size_t block, size_t at, size_t end,
                  struct arithmetic_range *piece);

/* The pieces of [begin, end): how many sums a LAMB step writes there. */
size_t device_pieces(const struct arithmetic_work *work, size_t block, size_t begin, size_t end);

#endif
