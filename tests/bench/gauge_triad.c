#include "tests/bench/gauge_triad.h"

#include "tests/bench/floor.h"
#include "tests/bench/gauge.h"

#include "common/clock.h"

#include <pthread.h>
#include <stdlib.h>

struct triad {
    struct triads *all;
    pthread_t thread;
    float *memory;
    double bytes;
    uint64_t begin_ns, end_ns;
};

struct triads {
    uint32_t threads;
    size_t n;
    bool past;
    double seconds;
    pthread_barrier_t start;
    struct triad of[GAUGE_THREADS_MAX];
};

gradweir_status triads_open(uint32_t threads, uint64_t elements, struct triads **triads)
{
    struct triads *made = calloc(1, sizeof *made);
    bool enough = made != NULL;
    if (enough) {
        made->threads = threads;
        made->n = (size_t)(elements / 16 * 16 + 16);
        pthread_barrier_init(&made->start, NULL, threads);
    }
    for (uint32_t i = 0; i < threads && enough; i++) {
        made->of[i].all = made;
        made->of[i].memory = floor_memory(3 * made->n * sizeof(float));
        enough = made->of[i].memory != NULL;
    }
    if (!enough) {
        triads_close(made);
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the triad");
    }
    *triads = made;
    return GRADWEIR_OK;
}

void triads_close(struct triads *triads)
{
    if (!triads)
        return;
    for (uint32_t i = 0; i < triads->threads; i++)
        floor_memory_free(triads->of[i].memory, 3 * triads->n * sizeof(float));
    pthread_barrier_destroy(&triads->start);
    free(triads);
}

static void *run(void *argument)
{
    struct triad *triad = argument;
    const struct triads *all = triad->all;
    float *a = triad->memory;
    pthread_barrier_wait(&triad->all->start);
    triad->begin_ns = clock_now_ns();
    triad->bytes = floor_triad_on(a, a + all->n, a + 2 * all->n, all->n, all->past, all->seconds);
    triad->end_ns = clock_now_ns();
    return NULL;
}

static double rate_of_way(struct triads *triads, bool past, double seconds)
{
    double bytes = 0;
    uint64_t begin_ns = UINT64_MAX, end_ns = 0;
    triads->past = past;
    triads->seconds = seconds;
    for (uint32_t i = 1; i < triads->threads; i++)
        if (pthread_create(&triads->of[i].thread, NULL, run, &triads->of[i]) != 0)
            abort(); /* the others wait at the barrier already */
    run(&triads->of[0]);
    for (uint32_t i = 0; i < triads->threads; i++) {
        const struct triad *triad = &triads->of[i];
        if (i > 0)
            pthread_join(triad->thread, NULL);
        bytes += triad->bytes;
        begin_ns = triad->begin_ns < begin_ns ? triad->begin_ns : begin_ns;
        end_ns = triad->end_ns > end_ns ? triad->end_ns : end_ns;
    }
    return bytes / (double)(end_ns - begin_ns);
}

double triads_rate(struct triads *triads, double seconds)
{
    const double through = rate_of_way(triads, false, seconds / 2);
    const double past = rate_of_way(triads, true, seconds / 2);
    return through > past ? through : past;
}
