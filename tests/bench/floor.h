/* The floor under every rate of a parameter server: what one thread of this machine can do at all
 * with a gradient, with libc and nothing else. A push that no wire and no protocol slows down is
 *
 *     copy into a slot + CRC32C + test that all is finite, fused block by block (land)
 *     then the step of the window 1: the gradient is read from its slot once, parameters and the
 *     optimizer's state are read and written in place (step)
 *
 * Two passes, because whether a gradient counts is known only once all of it is there. Slots and
 * sources rotate over at least FLOOR_ROTATION bytes each, so that a gradient comes from memory and
 * lies where the last one did not. Each part has several ways of writing (through the cache, past
 * it); floor_open tries them at the given size and keeps the fastest.
 *
 * Limits of the machine, measured beside: floor_copy_limit (the best of libc's memcpy, and copies
 * past the cache) and floor_triad (a[i] = b[i] + s c[i], in place or not: 12 bytes of traffic per
 * element). All rates are 1e9 bytes per second. */
#ifndef GRADWEIR_BENCH_FLOOR_H
#define GRADWEIR_BENCH_FLOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLOOR_ROTATION ((size_t)64 << 20)
#define FLOOR_BLOCK    ((size_t)12288) /* of land: lies in the first cache */

enum floor_optimizer { FLOOR_SGD, FLOOR_ADAM };

/* Bytes that a step must move per float: read gradient, read and write parameters; Adam: and both
 * moments. */
enum { FLOOR_SGD_TRAFFIC = 12, FLOOR_ADAM_TRAFFIC = 28, FLOOR_TRIAD_TRAFFIC = 12 };

struct floor_adam {
    float rate, beta1, beta2, bias2_root, epsilon;
};

/* Loops, compiled once per instruction set. Pointers are aligned to 64 bytes, sizes are bytes and
 * multiples of 4. */
struct floor_loops {
    const char *name;
    /* The CRC32C of what was copied; *finite: no NaN or infinity among the floats. */
    uint32_t (*land)(void *to, const void *from, size_t bytes, bool *finite);
    uint32_t (*land_past)(void *to, const void *from, size_t bytes, bool *finite);
    void (*copy_past)(void *to, const void *from, size_t bytes);
    void (*sgd)(float *w, const float *g, size_t n, float rate);
    void (*adam)(float *w, float *m, float *v, const float *g, size_t n,
                 const struct floor_adam *with);
    void (*triad)(float *a, const float *b, const float *c, size_t n, float s);
    void (*triad_past)(float *a, const float *b, const float *c, size_t n, float s);
};

extern const struct floor_loops floor_plain, floor_v3, floor_v4;

/* The best set that this machine runs. */
const struct floor_loops *floor_choose(void);

/* Whether what the loops compute is right: checksums as CRC32C is defined, NaN found, steps as
 * their formulas. */
bool floor_sound(const struct floor_loops *loops);

struct floor;

/* Sources, slots, parameters and state for gradients of `bytes` (rounded up to 64); every page is
 * touched. NULL without memory. */
struct floor *floor_open(size_t bytes, enum floor_optimizer optimizer);
void floor_close(struct floor *floor);

/* Rates over about `seconds`, in payload: bytes of gradients per second. */
double floor_push_rate(struct floor *floor, double seconds);
double floor_land_rate(struct floor *floor, double seconds);
double floor_step_rate(struct floor *floor, double seconds);
double floor_copy_rate(struct floor *floor, double seconds);   /* land's copy alone */
double floor_memcpy_rate(struct floor *floor, double seconds); /* libc's, the whole at once */
double floor_copy_limit(struct floor *floor, double seconds);

/* Traffic of a triad over arrays of `bytes` each, the better of both ways, over rotating memory. */
double floor_triad(struct floor *floor, double seconds);

/* Triads over memory of one's own, three arrays of n floats, one way for about `seconds`: bytes of
 * traffic. For several threads. */
double floor_triad_on(float *a, const float *b, const float *c, size_t n, bool past,
                      double seconds);

/* Zeroed memory at a page's border, in large pages where the machine gives them, every one touched;
 * NULL without. */
void *floor_memory(size_t bytes);
void floor_memory_free(void *memory, size_t bytes);

/* Which ways were chosen, for people: "v4, land past the cache". */
const char *floor_ways(const struct floor *floor);

#endif
