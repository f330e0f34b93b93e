/* See landed_fold.h; flags for this file and its like are in CMakeLists.txt. */
#include "common/landed_fold.h"

#include "common/fold_step.h"
#include "common/status.h"

#ifdef FOLD_HERE

bool landed_fold_runs(const struct arithmetic *arithmetic)
{
    return fold_runs(arithmetic);
}

FOLD_INLINE void measure(struct fold_sums *f, __m512i next)
{
    f->largest =
        _mm512_max_epu32(f->largest, _mm512_and_si512(next, _mm512_set1_epi32(0x7fffffff)));
    fold_square(&f->low, &f->high, _mm512_castsi512_ps(next));
}

/* Floats in a small page. The processor does not look beyond the page that it reads: who asks for a
 * line of the next one finds that page's place known and its lines on their way. */
#define PAGE ((size_t)1024)

struct stores {
    bool to, past, also, steps, streams;
};

/* Called with constants for all but the first three, so that there is no choice in the loop. */
FOLD_INLINE void fold_all(struct fold_sums *given, const struct landing *landing, size_t n,
                          const struct stores stores)
{
    struct fold_sums f = *given;
    const float *from = landing->from;
    float *to = landing->to, *also = landing->also;
    const struct fold_step step =
        stores.steps ? fold_step_of(landing) : (struct fold_step){.theta = NULL};
    for (size_t i = 0; i < n; i += LANDED_FOLD) {
        if (i % PAGE == 0)
            __builtin_prefetch((const void *)((uintptr_t)(from + i) + PAGE * sizeof *from));
        for (size_t k = 0; k < 4; k++) {
            const __m512i next = fold_load(from + i + 16 * k);
            if (stores.to)
                fold_put(to + i + 16 * k, next, stores.past);
            if (stores.also)
                fold_put(also + i + 16 * k, next, false);
            if (stores.steps)
                fold_step_on(&step, i + 16 * k, _mm512_castsi512_ps(next), stores.streams);
            measure(&f, next);
            f.z[k] = fold_in(f.z[k], i == 0, next);
        }
    }
    *given = f;
}

/* Where what landed is copied to, or not; with or without a step. Each a loop of its own. */
FOLD_INLINE void fold_to(struct fold_sums *f, const struct landing *landing, size_t n,
                         struct stores stores)
{
    if (landing->to == NULL) {
        fold_all(f, landing, n, stores);
        return;
    }
    stores.to = true;
    stores.past = landing->past && fold_aligned(landing->to);
    if (stores.past) {
        stores.past = true;
        fold_all(f, landing, n, stores);
    } else {
        stores.past = false;
        fold_all(f, landing, n, stores);
    }
}

static void store_all(struct fold_sums *f, const struct landing *landing, size_t n)
{
    ASSERT(landing->also == NULL || landing->plan == NULL);
    if (landing->also != NULL)
        fold_to(f, landing, n, (struct stores){.also = true});
    else if (landing->plan == NULL)
        fold_to(f, landing, n, (struct stores){.also = false});
    else if (fold_step_streams(landing))
        fold_to(f, landing, n, (struct stores){.steps = true, .streams = true});
    else
        fold_to(f, landing, n, (struct stores){.steps = true});
}

uint32_t landed_fold(const struct landing *landing, size_t n, uint32_t seed,
                     struct arithmetic_running *running)
{
    struct fold_sums f = fold_begin(seed, running);
    ASSERT(n > 0 && n % LANDED_FOLD == 0);
    store_all(&f, landing, n);
    _mm_sfence(); /* what went past the cache is seen by others before they hear of it */
    return fold_end(&f, _mm512_reduce_max_epu32(f.largest), running);
}

#else

bool landed_fold_runs(const struct arithmetic *arithmetic)
{
    (void)arithmetic;
    return false;
}

uint32_t landed_fold(const struct landing *landing, size_t n, uint32_t seed,
                     struct arithmetic_running *running)
{
    (void)landing;
    (void)n;
    (void)running;
    ASSERT(!"folding here");
    return seed;
}

#endif
