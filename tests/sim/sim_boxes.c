/* Pulls of boxes, in bfloat16, of what is newer, of one version exactly: what a worker asks for,
 * and what it must have got. Worked out here element by element, from where each lies in its
 * tensor. */
#include "tests/sim/sim_calls.h"

#include "common/arithmetic_element.h"

#include <string.h>

/* A few boxes that share no element, one behind the other in memory. */
static void choose_boxes(struct sim *sim, struct sim_worker *worker)
{
    struct session_pull_request *request = &worker->request;
    uint64_t place = SIM_BODY_BYTES;
    const uint64_t tries = 1 + random_below(&sim->random, SIM_BOXES);
    request->boxes = worker->boxes;
    request->half = chance(&sim->random, 0.5);
    for (uint64_t i = 0; i < tries; i++) {
        struct part box = {.tensor =
                               (uint32_t)random_below(&sim->random, sim->model->tensors_count)};
        const struct model_tensor *tensor = &sim->model->tensors[box.tensor];
        if (tensor->dimensions)
            box.axis = (uint32_t)random_below(&sim->random, tensor->dimensions);
        const uint64_t whole = tensor->dimensions ? tensor->shape[box.axis] : 1;
        box.first = random_below(&sim->random, whole);
        box.count = 1 + random_below(&sim->random, whole - box.first);
        if (chance(&sim->random, 0.05))
            box = (struct part){.tensor = PIECES_ALL, .count = sim->model->elements};
        bool meets = box.tensor == PIECES_ALL && i > 0;
        for (uint32_t k = 0; k < request->boxes_count; k++)
            meets = meets || box_meets(&box, &worker->boxes[k]) ||
                    worker->boxes[k].tensor == PIECES_ALL;
        if (meets)
            continue;
        worker->places[request->boxes_count] = place;
        worker->boxes[request->boxes_count++] = box;
        place += box_bytes(&box, sim->model, request->half);
    }
    sim->counts.box_pulls++;
    sim->counts.half_pulls += request->half;
}

void boxes_choose(struct sim *sim, uint32_t index, bool after)
{
    struct sim_worker *worker = &sim->workers[index];
    struct session_pull_request *request = &worker->request;
    *request = (struct session_pull_request){.boxes_count = 0};
    memset(worker->receive, 0x5a, sizeof worker->receive);
    if (chance(&sim->random, 0.4))
        choose_boxes(sim, worker);
    if (after)
        return;
    if (worker->pulled_once && chance(&sim->random, 0.25)) {
        request->newer = true;
        request->version = worker->basis;
        sim->counts.newer_pulls++;
    } else if (worker->pulled_once && chance(&sim->random, 0.05)) {
        request->exact = true;
        request->version = random_below(&sim->random, 2) ? worker->basis : worker->basis / 2;
        sim->counts.exact_pulls++;
    }
}

/* Whether element `i` of a tensor is in the box: its index on the box's axis. */
static bool is_in(const struct model_tensor *tensor, const struct part *box, uint64_t i)
{
    for (uint32_t d = tensor->dimensions; d > box->axis + 1; d--)
        i /= tensor->shape[d - 1];
    const uint64_t index = tensor->dimensions ? i % tensor->shape[box->axis] : 0;
    return index >= box->first && index < box->first + box->count;
}

static uint64_t put(const struct sim *sim, bool floats, uint64_t element, bool half,
                    const uint8_t *body, uint8_t *to)
{
    const uint64_t unit = floats ? sizeof(float) : sizeof(struct moments);
    const uint64_t section = floats ? 0 : sim->model->elements * sizeof(float);
    memcpy(to, body + section + element * unit, unit);
    if (!floats || !half)
        return unit;
    float x;
    memcpy(&x, to, sizeof x);
    const uint16_t rounded = element_to_bf16(x);
    memcpy(to, &rounded, sizeof rounded);
    return sizeof rounded;
}

static uint64_t expect(const struct sim *sim, const struct part *box, bool half,
                       const uint8_t *body, uint8_t *to)
{
    uint64_t bytes = 0;
    const bool all = box->tensor == PIECES_ALL;
    const struct model_tensor *tensor = all ? NULL : &sim->model->tensors[box->tensor];
    const uint64_t elements = all ? sim->model->elements : tensor->elements;
    for (uint64_t i = 0; i < elements; i++)
        if (all || is_in(tensor, box, i))
            bytes += put(sim, all || tensor->kind == MODEL_PARAMETER,
                         (all ? 0 : tensor->offset) + i, half, body, to + bytes);
    return bytes;
}

void boxes_check(struct sim *sim, uint32_t index, uint64_t version)
{
    const struct sim_worker *worker = &sim->workers[index];
    uint8_t wanted[SIM_BODY_BYTES];
    check_rode(sim, index, version);
    if (version >= sim->reference->versions)
        sim_fail(sim, "worker %u pulled version %llu, which no step has made", index,
                 (unsigned long long)version);
    for (uint32_t i = 0; i < worker->request.boxes_count; i++) {
        const uint64_t bytes = expect(sim, &worker->boxes[i], worker->request.half,
                                      sim->reference->bodies[version], wanted);
        if (memcmp(wanted, worker->receive + worker->places[i], bytes) != 0)
            sim_fail(sim, "worker %u pulled box %u of version %llu and got something else", index,
                     i, (unsigned long long)version);
    }
}

/* Nothing may have moved, and nothing newer may have been known to it. */
void boxes_unmoved(struct sim *sim, uint32_t index, uint64_t version)
{
    const struct sim_worker *worker = &sim->workers[index];
    sim->counts.unmoved++;
    if (!worker->request.newer || version > worker->request.version)
        sim_fail(sim, "worker %u is told that nothing is newer than %llu, and that %llu is there",
                 index, (unsigned long long)worker->request.version, (unsigned long long)version);
    for (size_t i = 0; i < sizeof worker->receive; i++)
        if (worker->receive[i] != 0x5a)
            sim_fail(sim, "worker %u is told that nothing moved, but something did", index);
}
