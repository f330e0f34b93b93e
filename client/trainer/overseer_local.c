/* See overseer.h. */
#include "client/trainer/overseer.h"

#include <math.h>

void return_window_add(struct return_window *window, double value)
{
    window->returns[window->count++ % OVERSEER_WINDOW] = value;
}

bool return_window_full(const struct return_window *window)
{
    return window->count >= OVERSEER_WINDOW;
}

double return_window_mean(const struct return_window *window)
{
    const uint64_t n = return_window_full(window) ? OVERSEER_WINDOW : window->count;
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += window->returns[i];
    return n > 0 ? sum / (double)n : NAN;
}

static bool confirmed(struct overseer_local *local, const float *parameters)
{
    if (!return_window_full(&local->window) || local->window.count < local->trial_at ||
        !(return_window_mean(&local->window) >= local->until))
        return false;
    local->trial_at = local->window.count + OVERSEER_TRIAL_DISTANCE;
    return local->confirm == NULL || local->confirm(local->context, parameters) >= local->until;
}

static bool hear(struct overseer *overseer, const struct overseer_news *news)
{
    struct overseer_local *local = (struct overseer_local *)overseer;
    local->environment_steps += news->environment_steps;
    for (size_t i = 0; i < news->n_returns; i++)
        return_window_add(&local->window, news->returns[i]);
    local->solved = confirmed(local, news->parameters);
    return local->solved || local->environment_steps >= local->steps_max;
}

void overseer_local_init(struct overseer_local *local, double until, uint64_t steps_max)
{
    *local = (struct overseer_local){.overseer.hear = hear, .until = until, .steps_max = steps_max};
}
