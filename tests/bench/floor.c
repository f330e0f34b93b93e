/* Memory and clock of the floor: libc only, one thread. See floor.h. */
#include "tests/bench/floor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ALIGNED = 64, HUGE = 2 << 20, TRIES = 5 };

/* What a rate times: the i-th gradient through one part. */
typedef void floor_part(struct floor *floor, size_t i);

struct floor {
    const struct floor_loops *loops;
    enum floor_optimizer optimizer;
    size_t bytes, count; /* of a gradient; sources, and slots */
    size_t turn;
    char *sources, *slots, *memory;
    size_t memory_bytes;
    float *w, *m, *v;
    struct floor_adam adam;
    floor_part *land, *copy;
    uint32_t crc; /* of the last; kept so that nothing is optimised away */
    bool finite;
    char ways[64];
};

const struct floor_loops *floor_choose(void)
{
#if defined(FLOOR_ALONE)
    return &floor_plain;
#elif defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("vpclmulqdq"))
        return &floor_v4;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &floor_v3
                                                                           : &floor_plain;
#else
    return &floor_plain;
#endif
}

static uint32_t crc_by_definition(const unsigned char *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static bool land_sound(const struct floor_loops *loops, unsigned char *from, unsigned char *to)
{
    static const size_t sizes[] = {4, 64, 252, 256, 1024, 12288, 12292, 40000};
    bool sound = true, finite;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int past = 0; past < 2; past++) {
            float *last = (float *)(void *)(from + sizes[i] - 4);
            const float before = *last;
            memset(to, 0, sizes[i]);
            const uint32_t crc =
                (past ? loops->land_past : loops->land)(to, from, sizes[i], &finite);
            sound &= finite && crc == crc_by_definition(from, sizes[i]);
            sound &= memcmp(to, from, sizes[i]) == 0;
            *last = (float)INFINITY;
            (past ? loops->land_past : loops->land)(to, from, sizes[i], &finite);
            sound &= !finite;
            *last = before;
        }
    return sound;
}

bool floor_sound(const struct floor_loops *loops)
{
    enum { N = 10000 };
    float *memory = floor_memory(4 * N * sizeof *memory);
    if (!memory)
        return false;
    float *w = memory + N, *m = memory + 2 * N;
    for (int i = 0; i < N; i++)
        memory[i] = (float)(i % 31 - 15);
    bool sound = land_sound(loops, (unsigned char *)memory, (unsigned char *)w);
    memset(w, 0, 3 * N * sizeof *w);
    loops->sgd(w, memory, N, 0.5f);
    for (int i = 0; i < N; i++)
        sound &= w[i] == -0.5f * memory[i];
    memset(w, 0, N * sizeof *w);
    loops->adam(w, m, memory + 3 * N, memory, N, &(struct floor_adam){1, 0.5f, 0.75f, 0.5f, 0});
    for (int i = 0; i < N; i++)
        sound &= memory[i] == 0 || fabsf(w[i] + (memory[i] > 0 ? 0.5f : -0.5f)) < 1e-5f;
    floor_memory_free(memory, 4 * N * sizeof *memory);
    return sound;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static char *source(const struct floor *floor, size_t i)
{
    return floor->sources + i % floor->count * floor->bytes;
}

static char *slot(const struct floor *floor, size_t i)
{
    return floor->slots + i % floor->count * floor->bytes;
}

static void part_land(struct floor *floor, size_t i)
{
    floor->crc ^=
        floor->loops->land(slot(floor, i), source(floor, i), floor->bytes, &floor->finite);
}

static void part_land_past(struct floor *floor, size_t i)
{
    floor->crc ^=
        floor->loops->land_past(slot(floor, i), source(floor, i), floor->bytes, &floor->finite);
}

static void part_step(struct floor *floor, size_t i)
{
    const float *g = (const float *)(const void *)slot(floor, i);
    const size_t n = floor->bytes / sizeof *g;
    if (floor->optimizer == FLOOR_SGD)
        floor->loops->sgd(floor->w, g, n, 1e-3f);
    else
        floor->loops->adam(floor->w, floor->m, floor->v, g, n, &floor->adam);
}

static void part_push(struct floor *floor, size_t i)
{
    floor->land(floor, i);
    if (floor->finite)
        part_step(floor, i);
}

static void part_memcpy(struct floor *floor, size_t i)
{
    memcpy(slot(floor, i), source(floor, i), floor->bytes);
}

static void part_copy_blocks(struct floor *floor, size_t i)
{
    for (size_t at = 0; at < floor->bytes; at += FLOOR_BLOCK) {
        const size_t rest = floor->bytes - at;
        memcpy(slot(floor, i) + at, source(floor, i) + at, rest < FLOOR_BLOCK ? rest : FLOOR_BLOCK);
    }
}

static void part_copy_past(struct floor *floor, size_t i)
{
    floor->loops->copy_past(slot(floor, i), source(floor, i), floor->bytes);
}

static void triad_with(struct floor *floor, size_t i, bool past)
{
    float *a = (float *)(void *)slot(floor, i);
    const float *b = (const float *)(const void *)source(floor, i);
    const float *c = (const float *)(const void *)source(floor, i + 1);
    const size_t n = floor->bytes / sizeof *a;
    (past ? floor->loops->triad_past : floor->loops->triad)(a, b, c, n, 0.5f);
}

static void part_triad(struct floor *floor, size_t i)
{
    triad_with(floor, i, false);
}

static void part_triad_past(struct floor *floor, size_t i)
{
    triad_with(floor, i, true);
}

/* Payload per second of one part: as many at a time as take a measurable while. */
static double rate(struct floor *floor, floor_part *part, double seconds)
{
    const size_t some = floor->bytes < (1 << 20) ? ((1 << 20) / floor->bytes) + 1 : 1;
    const double begin = now();
    size_t done = 0;
    double end;
    do {
        for (size_t i = 0; i < some; i++)
            part(floor, floor->turn++);
        done += some;
        end = now();
    } while (end - begin < seconds);
    return 1e-9 * (double)done * (double)floor->bytes / (end - begin);
}

static floor_part *better(struct floor *floor, floor_part *with_after, floor_part *a, floor_part *b,
                          floor_part **kept)
{
    double best[2] = {0, 0};
    floor_part *both[2] = {a, b};
    for (int i = 0; i < TRIES; i++)
        for (int k = 0; k < 2; k++) {
            *kept = both[k];
            const double here = rate(floor, with_after ? with_after : both[k], 0.02);
            best[k] = here > best[k] ? here : best[k];
        }
    *kept = best[1] > best[0] ? b : a;
    return *kept;
}

/* Cut from one mapping, each a little beside the others' place in the cache. */
static char *cut(struct floor *floor, size_t *used, size_t bytes)
{
    char *piece = floor->memory + *used;
    *used += (bytes + HUGE - 1) / HUGE * HUGE + 64 * ALIGNED;
    return piece;
}

void *floor_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 0, bytes);
    return memory;
}

void floor_memory_free(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

static bool take_memory(struct floor *floor)
{
    const size_t ring = floor->count * floor->bytes;
    floor->memory_bytes = 2 * (ring + HUGE) + 3 * (floor->bytes + HUGE) + 6 * 64 * ALIGNED;
    void *memory =
        mmap(NULL, floor->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    madvise(memory, floor->memory_bytes, MADV_HUGEPAGE);
    memset(memory, 0, floor->memory_bytes);
    floor->memory = memory;
    size_t used = 0;
    floor->sources = cut(floor, &used, ring);
    floor->slots = cut(floor, &used, ring);
    floor->w = (float *)(void *)cut(floor, &used, floor->bytes);
    floor->m = (float *)(void *)cut(floor, &used, floor->bytes);
    floor->v = (float *)(void *)cut(floor, &used, floor->bytes);
    float *g = (float *)(void *)floor->sources;
    for (size_t i = 0; i < ring / sizeof *g; i++)
        g[i] = 1e-3f * (float)((int)(i % 17) - 8);
    return true;
}

struct floor *floor_open(size_t bytes, enum floor_optimizer optimizer)
{
    struct floor *floor = calloc(1, sizeof *floor);
    if (!floor)
        return NULL;
    floor->loops = floor_choose();
    floor->optimizer = optimizer;
    floor->bytes = (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
    floor->count = (FLOOR_ROTATION + floor->bytes - 1) / floor->bytes;
    if (floor->count < 2)
        floor->count = 2;
    floor->adam = (struct floor_adam){1e-3f, 0.9f, 0.999f, 1, 1e-8f};
    if (!take_memory(floor)) {
        free(floor);
        return NULL;
    }
    floor->land = part_land;
    better(floor, part_push, part_land, part_land_past, &floor->land);
    better(floor, NULL, part_copy_blocks, part_copy_past, &floor->copy);
    snprintf(floor->ways, sizeof floor->ways, "%s, lands %s the cache", floor->loops->name,
             floor->land == part_land ? "through" : "past");
    return floor;
}

void floor_close(struct floor *floor)
{
    if (!floor)
        return;
    floor_memory_free(floor->memory, floor->memory_bytes);
    free(floor);
}

double floor_push_rate(struct floor *floor, double seconds)
{
    return rate(floor, part_push, seconds);
}

double floor_land_rate(struct floor *floor, double seconds)
{
    return rate(floor, floor->land, seconds);
}

double floor_step_rate(struct floor *floor, double seconds)
{
    return rate(floor, part_step, seconds);
}

double floor_copy_rate(struct floor *floor, double seconds)
{
    return rate(floor, floor->copy, seconds);
}

double floor_memcpy_rate(struct floor *floor, double seconds)
{
    return rate(floor, part_memcpy, seconds);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

double floor_copy_limit(struct floor *floor, double seconds)
{
    const double libc = rate(floor, part_memcpy, seconds / 3);
    const double past = rate(floor, part_copy_past, seconds / 3);
    return larger(larger(libc, past), rate(floor, part_copy_blocks, seconds / 3));
}

double floor_triad(struct floor *floor, double seconds)
{
    const double through = rate(floor, part_triad, seconds / 2);
    const double past = rate(floor, part_triad_past, seconds / 2);
    return larger(through, past) * FLOOR_TRIAD_TRAFFIC / sizeof(float);
}

double floor_triad_on(float *a, const float *b, const float *c, size_t n, bool past, double seconds)
{
    const struct floor_loops *loops = floor_choose();
    const double begin = now();
    double done = 0;
    do {
        (past ? loops->triad_past : loops->triad)(a, b, c, n, 0.5f);
        done += (double)n * FLOOR_TRIAD_TRAFFIC;
    } while (now() - begin < seconds);
    return done;
}

const char *floor_ways(const struct floor *floor)
{
    return floor->ways;
}
