/* How fast the trainer's engine is: environment steps a second while it acts in environments of its
 * own, and PPO gradients a second from what it has collected. Two lines of device_check's table.
 *
 *   engine_rates [SECONDS [DEVICE [ENVIRONMENTS]]]      default 2 cuda 4096
 *
 * 0; 1: the engine failed, or a number is not finite; 77: there is no such device here. */
#include "client/trainer/environment.h"
#include "client/trainer/train_loop.h"
#include "client/trainer/train_settings.h"
#include "client/trainer/update.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SKIPPED = 77, STEPS = 32, MINIBATCHES = 16, WARM = 4 };

struct rates {
    struct train_settings settings;
    struct trainer trainer;
    struct update update;
    struct rollout rollout;
    float *parameters;
    double seconds; /* for each of the two */
    size_t next;    /* minibatch */
};

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static gradweir_status collect(struct rates *r)
{
    const struct engine_running *running = &r->trainer.running;
    return running->engine->collect(running->state, &r->rollout);
}

static gradweir_status compute(struct rates *r)
{
    const struct engine_running *running = &r->trainer.running;
    const size_t n = update_minibatch_max(&r->settings);
    const struct engine_minibatch minibatch = {
        .order = r->update.order + r->next * n, .n = n, .loss = &r->update.loss};
    r->next = (r->next + 1) % MINIBATCHES;
    return running->engine->gradient(running->state, &minibatch, r->update.gradient,
                                     &r->update.losses);
}

/* Calls a second: some that are not counted (graphs are captured then), then for `seconds`. */
static gradweir_status rate_of(struct rates *r, gradweir_status (*call)(struct rates *),
                               double *rate)
{
    gradweir_status status = GRADWEIR_OK;
    for (int i = 0; i < WARM && status == GRADWEIR_OK; i++)
        status = call(r);
    const double begin = now_s();
    double n = 0;
    while (status == GRADWEIR_OK && now_s() < begin + r->seconds) {
        status = call(r);
        n++;
    }
    *rate = n / (now_s() - begin);
    return status;
}

static bool is_finite(const struct rates *r)
{
    bool finite = isfinite(r->update.losses.loss);
    for (size_t i = 0; i < r->trainer.network.n_parameters; i++)
        finite = finite && isfinite(r->update.gradient[i]);
    return finite;
}

static gradweir_status start(struct rates *r, struct engine_reason *reason)
{
    const gradweir_status status = trainer_open(&r->settings, 0, &r->trainer, reason);
    struct engine_info info;
    if (status != GRADWEIR_OK)
        return status;
    r->trainer.running.engine->info(r->trainer.running.state, &info);
    const struct rollout_shape shape = {r->settings.environment,
                                        r->settings.rollout,
                                        r->settings.envs,
                                        r->settings.seed,
                                        0,
                                        info.groups};
    r->parameters = calloc(r->trainer.network.n_parameters, sizeof *r->parameters);
    if (r->parameters == NULL || !rollout_init(&r->rollout, &shape) ||
        !update_init(&r->update, &r->settings, &r->trainer.network, 0, r->trainer.running))
        return GRADWEIR_ERR_NO_MEMORY;
    train_first_parameters(&r->settings, &r->trainer.network, r->parameters);
    printf("engine_rates: %s, %s, %zu environments\n", info.text, r->settings.env,
           r->rollout.environments);
    return r->trainer.running.engine->load(r->trainer.running.state, r->parameters);
}

static void line(const char *name, const char *result, const char *speed)
{
    printf("%-54s %-14s %-16s %s\n", name, "finite", result, speed);
}

static gradweir_status measure(struct rates *r, bool *good)
{
    const struct engine_running *running = &r->trainer.running;
    const double samples = (double)(r->rollout.steps * r->rollout.environments);
    char name[64], speed[64];
    double rollouts, gradients = 0;
    gradweir_status status = rate_of(r, collect, &rollouts);
    if (status == GRADWEIR_OK)
        status = running->engine->estimate(running->state, &r->rollout, r->update.advantages);
    if (status == GRADWEIR_OK)
        status = rate_of(r, compute, &gradients);
    if (status != GRADWEIR_OK)
        return status;
    *good = is_finite(r);
    snprintf(name, sizeof name, "env-steps, %zu environments %s", r->rollout.environments,
             r->rollout.kept ? "on the GPU" : "on the CPU");
    snprintf(speed, sizeof speed, "%9.2f million/s", rollouts * samples / 1e6);
    line(name, *good ? "yes" : "WRONG", speed);
    snprintf(name, sizeof name, "PPO gradients of %zu samples",
             (size_t)update_minibatch_max(&r->settings));
    snprintf(speed, sizeof speed, "%9.1f /s, %.2f million samples/s", gradients,
             gradients * (double)update_minibatch_max(&r->settings) / 1e6);
    line(name, *good ? "yes" : "WRONG", speed);
    return status;
}

int main(int count, char **words)
{
    static struct rates r;
    struct engine_reason reason = {.text = ""};
    bool good = false;
    train_settings_init(&r.settings);
    r.seconds = count > 1 ? strtod(words[1], NULL) : 2;
    r.settings.device = count > 2 ? words[2] : "cuda";
    r.settings.envs = count > 3 ? strtoull(words[3], NULL, 10) : 4096;
    r.settings.env_device = strcmp(r.settings.device, "cpu") == 0 ? "cpu" : "cuda";
    r.settings.environment = environment_find(r.settings.env);
    r.settings.rollout = STEPS;
    r.settings.minibatches = MINIBATCHES;
    gradweir_status status = start(&r, &reason);
    if (status == GRADWEIR_ERR_UNSUPPORTED) {
        printf("engine_rates: SKIPPED: %s\n", reason.text);
        return SKIPPED;
    }
    if (status == GRADWEIR_OK)
        status = measure(&r, &good);
    if (status != GRADWEIR_OK)
        printf("engine_rates: FAILED: %d %s%s\n", (int)status, reason.text,
               r.trainer.running.state ? r.trainer.running.engine->reason(r.trainer.running.state)
                                       : "");
    update_deinit(&r.update);
    rollout_deinit(&r.rollout);
    trainer_close(&r.trainer);
    free(r.parameters);
    return status == GRADWEIR_OK && good ? 0 : 1;
}
