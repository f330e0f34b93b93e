/* One mutex, two conditions: pieces are long (10 us and more) beside what a lock costs. What
 * spinning looks at is a number that changes with each work. */
#include "common/helpers.h"

#include "common/clock.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const uint64_t spin_ns = 20000;
static const long wait_ns = 200000;
enum { LOOKS_MAX = 64 }; /* before the owner waits */

struct helpers {
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    pthread_t threads[HELPERS_MAX];
    uint32_t count, sleeping, looks;
    bool crowded, stop;
    void (*piece)(void *context, size_t i);
    void *context;
    size_t pieces, taken;
    atomic_size_t undone;
    atomic_uint works;
};

/* Until there is another work, or it has taken too long. */
static void spin(struct helpers *helpers, unsigned works)
{
    const uint64_t until = clock_now_ns() + spin_ns;
    while (atomic_load(&helpers->works) == works && clock_now_ns() < until)
        sched_yield();
}

/* The mutex is held before and after. */
static void wait_for_work(struct helpers *helpers)
{
    const unsigned works = atomic_load(&helpers->works);
    if (!helpers->crowded) {
        pthread_mutex_unlock(&helpers->mutex);
        spin(helpers, works);
        pthread_mutex_lock(&helpers->mutex);
    }
    helpers->sleeping++;
    while (!helpers->stop && atomic_load(&helpers->works) == works)
        pthread_cond_wait(&helpers->work, &helpers->mutex);
    helpers->sleeping--;
}

static void *help(void *context)
{
    struct helpers *helpers = context;
    pthread_mutex_lock(&helpers->mutex);
    while (!helpers->stop) {
        if (helpers->taken == helpers->pieces) {
            wait_for_work(helpers);
            continue;
        }
        const size_t i = helpers->taken++;
        pthread_mutex_unlock(&helpers->mutex);
        helpers->piece(helpers->context, i);
        pthread_mutex_lock(&helpers->mutex);
        if (atomic_fetch_sub(&helpers->undone, 1) == 1)
            pthread_cond_signal(&helpers->done);
    }
    pthread_mutex_unlock(&helpers->mutex);
    return NULL;
}

/* Signals are the owner's process' business: no helper takes one. */
static gradweir_status start(struct helpers *helpers, uint32_t count)
{
    sigset_t all, before;
    int error = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (error == 0 && helpers->count < count) {
        error = pthread_create(&helpers->threads[helpers->count], NULL, help, helpers);
        helpers->count += error == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return fail(GRADWEIR_ERR_IO, "helpers: no thread: %s", strerror(error));
    return GRADWEIR_OK;
}

gradweir_status helpers_new(uint32_t count, bool crowded, struct helpers **helpers)
{
    ASSERT(count >= 1 && count <= HELPERS_MAX);
    struct helpers *made = calloc(1, sizeof *made);
    if (!made)
        return fail(GRADWEIR_ERR_NO_MEMORY, "helpers: %zu bytes", sizeof *made);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->work, NULL);
    pthread_cond_init(&made->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    made->crowded = crowded;
    const gradweir_status status = start(made, count);
    if (status == GRADWEIR_OK)
        *helpers = made;
    else
        helpers_free(made);
    return status;
}

void helpers_free(struct helpers *helpers)
{
    if (!helpers)
        return;
    pthread_mutex_lock(&helpers->mutex);
    helpers->stop = true;
    atomic_fetch_add(&helpers->works, 1);
    pthread_cond_broadcast(&helpers->work);
    pthread_mutex_unlock(&helpers->mutex);
    for (uint32_t i = 0; i < helpers->count; i++)
        pthread_join(helpers->threads[i], NULL);
    pthread_cond_destroy(&helpers->done);
    pthread_cond_destroy(&helpers->work);
    pthread_mutex_destroy(&helpers->mutex);
    free(helpers);
}

void helpers_begin(struct helpers *helpers, void (*piece)(void *context, size_t i), void *context,
                   size_t pieces)
{
    pthread_mutex_lock(&helpers->mutex);
    ASSERT(atomic_load(&helpers->undone) == 0);
    helpers->piece = piece;
    helpers->context = context;
    helpers->pieces = pieces;
    helpers->taken = 0;
    helpers->looks = 0;
    atomic_store(&helpers->undone, pieces);
    atomic_fetch_add(&helpers->works, 1);
    if (helpers->sleeping > 0 && pieces > 1)
        pthread_cond_broadcast(&helpers->work);
    pthread_mutex_unlock(&helpers->mutex);
}

bool helpers_take(struct helpers *helpers, size_t *i)
{
    pthread_mutex_lock(&helpers->mutex);
    const bool any = helpers->taken < helpers->pieces;
    if (any)
        *i = helpers->taken++;
    pthread_mutex_unlock(&helpers->mutex);
    return any;
}

void helpers_did(struct helpers *helpers)
{
    atomic_fetch_sub(&helpers->undone, 1);
}

bool helpers_done(struct helpers *helpers)
{
    if (atomic_load(&helpers->undone) == 0)
        return true;
    if (!helpers->crowded && helpers->looks++ < LOOKS_MAX)
        return false;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += wait_ns;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&helpers->mutex);
    if (helpers->taken == helpers->pieces && atomic_load(&helpers->undone) > 0)
        pthread_cond_timedwait(&helpers->done, &helpers->mutex, &until);
    pthread_mutex_unlock(&helpers->mutex);
    return atomic_load(&helpers->undone) == 0;
}
