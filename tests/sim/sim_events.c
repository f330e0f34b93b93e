/* Made-up time: a heap of what will happen, ordered by time and then by when it was decided. */
#include "tests/sim/sim_calls.h"

static bool earlier(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void push(struct sim *sim, const struct sim_event *event)
{
    if (sim->heap_n == SIM_EVENTS)
        sim_fail(sim, "the simulator's heap is full: something makes events without end");
    uint32_t i = sim->heap_n++;
    while (i > 0 && earlier(event, &sim->heap[(i - 1) / 2])) {
        sim->heap[i] = sim->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    sim->heap[i] = *event;
}

static struct sim_event pop(struct sim *sim)
{
    const struct sim_event first = sim->heap[0];
    const struct sim_event last = sim->heap[--sim->heap_n];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= sim->heap_n)
            break;
        if (child + 1 < sim->heap_n && earlier(&sim->heap[child + 1], &sim->heap[child]))
            child++;
        if (!earlier(&sim->heap[child], &last))
            break;
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    sim->heap[i] = last;
    return first;
}

void event_add(struct sim *sim, struct sim_event event)
{
    event.order = ++sim->events_made;
    if (event.at_ns < sim->now_ns)
        event.at_ns = sim->now_ns;
    push(sim, &event);
}

/* A stopped process gets nothing until it goes on; what came meanwhile keeps its order. */
bool event_next(struct sim *sim, struct sim_event *event)
{
    while (sim->heap_n > 0) {
        *event = pop(sim);
        const struct sim_actor *actor = &sim->actors[event->actor];
        if (event->kind == SIM_BODY || event->kind == SIM_CUT || event->kind == SIM_SUPERVISE ||
            event->at_ns >= actor->stopped_until_ns)
            return true;
        event->at_ns = actor->stopped_until_ns;
        push(sim, event);
    }
    return false;
}

bool chance(struct random *random, double p)
{
    return random_uniform(random) < p;
}

double between(struct random *random, double low, double high)
{
    return low + (high - low) * random_uniform(random);
}

/* Mostly short, now and then long while times are hostile. */
int64_t event_delay(struct sim *sim, double factor)
{
    const struct sim_settings *settings = &sim->settings;
    double ns = (double)settings->delay_ns * between(&sim->network, 0.2, 1.8) * factor;
    if (sim->hostile && chance(&sim->network, 0.03 * settings->trouble)) {
        sim->counts.delays++;
        ns *= between(&sim->network, 5, 40);
    }
    return 1 + (int64_t)ns;
}
