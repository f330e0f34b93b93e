/* A worker's user: pulls, computes, pushes, and goes on. What it computes has corners in it:
 * negative zeros, subnormal numbers, now and then what no gradient should hold. */
#include "tests/sim/sim_calls.h"

#include "common/checksum.h"

#include <float.h>
#include <math.h>
#include <string.h>

static void fill_parameters(struct sim *sim, float *floats, uint64_t bits)
{
    for (uint64_t i = 0; i < sim->model->elements; i++) {
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        const int32_t whole = (int32_t)(bits >> 33) - (1 << 30);
        floats[i] = (float)whole * 0x1p-30f;
        if ((bits >> 58) == 0)
            floats[i] = (bits >> 50 & 1) ? -0.0f : 1e-41f; /* negative zero, a subnormal */
    }
}

static void fill_moments(struct sim *sim, uint8_t *tail)
{
    for (uint64_t i = 0; i < sim->model->moments; i++) {
        const struct moments moments = {.count = (double)random_below(&sim->random, 20),
                                        .mean = between(&sim->random, -1, 1),
                                        .m2 = between(&sim->random, 0, 3)};
        memcpy(tail + i * sizeof moments, &moments, sizeof moments);
    }
}

/* A count that is no number would poison all that is merged with it. */
static void spoil_moments(struct sim *sim, uint8_t *tail)
{
    struct moments moments;
    if (sim->model->moments == 0)
        return;
    uint8_t *where = tail + random_below(&sim->random, sim->model->moments) * sizeof moments;
    memcpy(&moments, where, sizeof moments);
    double *const fields[] = {&moments.count, &moments.mean, &moments.m2};
    *fields[random_below(&sim->random, 3)] = chance(&sim->random, 0.5) ? NAN : INFINITY;
    memcpy(where, &moments, sizeof moments);
    sim->counts.bad_moments++;
}

static uint64_t choose_basis(struct sim *sim, uint64_t basis)
{
    if (!sim->hostile || !chance(&sim->random, 0.05 * sim->settings.trouble))
        return basis;
    sim->counts.odd_bases++;
    if (chance(&sim->random, 0.3))
        return basis + 1 + random_below(&sim->random, 1000);
    return random_below(&sim->random, basis + 1);
}

/* None at all, which a library would not send, only while times are hostile. */
static uint64_t choose_samples(struct sim *sim)
{
    const uint64_t samples = random_below(&sim->random, 100);
    return samples == 0 && !sim->hostile ? 1 : samples;
}

static void fill_later(struct sim *sim, uint32_t index, uint32_t buffer)
{
    event_add(sim, (struct sim_event){.at_ns = sim->now_ns + event_delay(sim, 0.5),
                                      .kind = SIM_FILL,
                                      .actor = actor_worker(index),
                                      .process = sim->actors[actor_worker(index)].process,
                                      .what = buffer});
}

/* The next piece of a body is made, or its end. */
void worker_fill(struct sim *sim, uint32_t index, uint32_t buffer)
{
    struct sim_worker *worker = &sim->workers[index];
    struct session_push_request now = worker->making[buffer];
    now.filled += random_below(&sim->random, sim->body_bytes + 1);
    now.filling = now.filled < sim->body_bytes && chance(&sim->random, 0.7);
    if (!now.filling || now.filled > sim->body_bytes)
        now.filled = sim->body_bytes;
    worker->making[buffer].filled = now.filled;
    memcpy(worker->buffers[buffer], worker->made[buffer], now.filled);
    if (now.filling) {
        now.norm = 0;
        now.digest = 0;
        fill_later(sim, index, buffer);
    }
    worker_step(sim, index, (struct session_event){.kind = SESSION_FILLED, .push = now});
}

/* Mostly of a whole body, now and then of one that is still made. */
static void begin_push(struct sim *sim, uint32_t index, struct session_push_request request)
{
    struct sim_worker *worker = &sim->workers[index];
    worker->making[request.buffer] = request;
    if (!group_has(sim, index) && chance(&sim->random, 0.4)) {
        sim->counts.fillings++;
        memcpy(worker->made[request.buffer], worker->buffers[request.buffer], sim->body_bytes);
        memset(worker->buffers[request.buffer], 0x55, sim->body_bytes);
        request.filling = true;
        request.norm = 0;
        request.digest = 0;
        fill_later(sim, index, request.buffer);
    }
    worker_step(sim, index, (struct session_event){.kind = SESSION_PUSH, .push = request});
}

static void push(struct sim *sim, uint32_t index, uint32_t buffer, uint32_t purpose)
{
    struct sim_worker *worker = &sim->workers[index];
    float floats[SIM_FLOATS];
    fill_parameters(sim, floats, random_next(&sim->random));
    if (sim->hostile && chance(&sim->random, 0.06 * sim->settings.trouble)) {
        sim->counts.not_finite++;
        floats[random_below(&sim->random, sim->model->elements)] =
            chance(&sim->random, 0.4)                               ? NAN
            : purpose == PURPOSE_FIRST || chance(&sim->random, 0.5) ? INFINITY
                                                                    : FLT_MAX;
    }
    uint8_t *body = worker->buffers[buffer];
    struct arithmetic_measure measured;
    memset(body, 0, SIM_BODY_BYTES);
    arithmetic_scalar.encode(sim_codec(sim, purpose), 1, floats, sim->model->elements, body);
    arithmetic_scalar.measure(sim_codec(sim, purpose), body, sim->model->elements, &measured);
    fill_moments(sim, body + sim_tail(sim, purpose));
    if (sim->hostile && chance(&sim->random, 0.02 * sim->settings.trouble))
        spoil_moments(sim, body + sim_tail(sim, purpose));
    worker->busy[buffer] = true;
    worker->pushes++;
    sim->counts.gradients++;
    struct session_push_request request = {
        .buffer = buffer,
        .purpose = purpose,
        .basis = purpose == PURPOSE_FIRST ? 0 : choose_basis(sim, worker->basis),
        .samples = choose_samples(sim),
        .norm = isfinite(measured.sum_squares) ? sqrt(measured.sum_squares) : 1,
        .digest = checksum_hash64(0, body, sim->body_bytes)};
    worker->norms[buffer] = request.norm;
    if (group_has(sim, index))
        request.digest = group_share(sim, 0, body);
    begin_push(sim, index, request);
    if (group_has(sim, index))
        group_push(sim, request);
}

static uint32_t free_buffer(const struct sim *sim, uint32_t index)
{
    const struct sim_worker *worker = &sim->workers[index];
    const bool group = group_has(sim, index);
    uint32_t i = 0;
    while (i < worker->outstanding && (worker->busy[i] || (group && sim->workers[1].busy[i])))
        i++;
    return i;
}

/* after: it rides with the newest push. */
static void pull(struct sim *sim, uint32_t index, bool after)
{
    struct sim_worker *worker = &sim->workers[index];
    worker->phase = USER_PULLING;
    worker->since_pull = 0;
    sim->counts.pulls++;
    sim->counts.riding_pulls += after;
    boxes_choose(sim, index, after);
    worker_step(
        sim, index,
        (struct session_event){.kind = SESSION_PULL, .after = after, .pull = worker->request});
}

static void push_or_wait(struct sim *sim, uint32_t index, uint32_t purpose)
{
    struct sim_worker *worker = &sim->workers[index];
    const uint32_t buffer = free_buffer(sim, index);
    const bool room = buffer < worker->outstanding;
    if (room) {
        worker->phase = USER_IDLE;
        worker->since_pull++;
        push(sim, index, buffer, purpose);
        if (purpose == PURPOSE_GRADIENT && !worker->out && chance(&sim->random, 0.3)) {
            pull(sim, index, true);
            return;
        }
    }
    if (purpose == PURPOSE_FIRST || free_buffer(sim, index) == worker->outstanding)
        worker->phase = USER_WAITING;
    else
        worker_think(sim, index, 0.5);
}

void worker_user(struct sim *sim, uint32_t index)
{
    struct sim_worker *worker = &sim->workers[index];
    if (worker->out || sim->quiet || worker->leaving || (group_has(sim, index) && index != 0))
        return;
    const bool alone =
        group_has(sim, index) && sim->workers[1].session.incarnation != worker->session.incarnation;
    if ((!worker->session.joined && !worker->session.resting) || alone) { /* alone: it binds yet */
        worker_think(sim, index, 1);
        return;
    }
    if (worker->phase == USER_PULLING || worker->phase == USER_WAITING)
        return;
    if (worker->reader) {
        pull(sim, index, false);
    } else if (!worker->session.first && !worker->pulled_once && !sim->reference->first) {
        push_or_wait(sim, index, PURPOSE_FIRST);
    } else if (worker->phase == USER_IDLE &&
               (!worker->pulled_once || worker->since_pull >= sim->settings.stale_pulls)) {
        pull(sim, index, false);
    } else {
        push_or_wait(sim, index, PURPOSE_GRADIENT);
    }
}
