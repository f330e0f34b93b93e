/* Two workers as ranks of one (--ranks). Rank 0 has the user; whatever it pushes rank 1 pushes too,
 * as far as it lives, each its share of the same body. So all that is checked of a gradient holds
 * of theirs: it is admitted whole or not at all, and once. When one of them dies alone, or comes
 * back as another process, the group ends: both start anew. */
#include "tests/sim/sim_calls.h"

#include "common/checksum.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 2 };

bool group_has(const struct sim *sim, uint32_t worker)
{
    return sim->settings.group && worker < RANKS;
}

void group_free(struct sim *sim)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        free(sim->parts[r]);
        sim->parts[r] = NULL;
    }
}

/* Each tensor is cut at a chosen place of a chosen axis: a rank may have all of it, or nothing. */
void group_choose(struct sim *sim)
{
    if (!sim->ranks || sim->workers_n < RANKS)
        return;
    sim->settings.group = true;
    sim->workers[1].reader = false;
    sim->workers[1].outstanding = sim->workers[0].outstanding;
    memcpy(sim->workers[1].identity, sim->workers[0].identity, IDENTITY_MAX);
    group_free(sim);
    for (uint32_t r = 0; r < RANKS; r++) {
        sim->parts[r] = parts_new(r, RANKS, sim->model->tensors_count);
        ASSERT(sim->parts[r]);
        sim->parts[r]->count = 0;
    }
    for (uint32_t t = 0; t < sim->model->tensors_count; t++) {
        const struct model_tensor *tensor = &sim->model->tensors[t];
        const uint32_t axis = (uint32_t)random_below(&sim->random, tensor->dimensions);
        const uint64_t cut = random_below(&sim->random, tensor->shape[axis] + 1);
        const struct part parts[RANKS] = {{t, axis, 0, cut},
                                          {t, axis, cut, tensor->shape[axis] - cut}};
        for (uint32_t r = 0; r < RANKS && tensor->kind == MODEL_PARAMETER; r++)
            if (parts[r].count > 0)
                sim->parts[r]->items[sim->parts[r]->count++] = parts[r];
    }
    sim->group_starts = 0;
}

void group_options(struct sim *sim, uint32_t worker, struct session_options *options)
{
    memset(options->nonce, 0x5a, sizeof options->nonce);
    memcpy(options->nonce, &sim->group_starts, sizeof sim->group_starts);
    options->parts = sim->parts[worker];
    options->model = sim->model;
    options->instance = random_next(&sim->random);
}

uint64_t group_share(const struct sim *sim, uint32_t rank, const uint8_t *body)
{
    return checksum_hash64(rank + 1, body, sim->body_bytes);
}

uint64_t group_digest(const struct sim *sim, const uint8_t *body)
{
    const uint64_t digests[RANKS] = {group_share(sim, 0, body), group_share(sim, 1, body)};
    return parts_digest(digests, RANKS);
}

/* Rank 1 has nothing of the norm, and now and then another basis. */
void group_push(struct sim *sim, struct session_push_request request)
{
    struct sim_worker *zero = &sim->workers[0], *one = &sim->workers[1];
    if (!worker_lives(sim, 0) || !worker_lives(sim, 1) || one->leaving)
        return; /* rank 0 will hear that it is alone */
    sim->counts.group_pushes++;
    memcpy(one->buffers[request.buffer], zero->buffers[request.buffer], sim->body_bytes);
    one->norms[request.buffer] = zero->norms[request.buffer];
    one->busy[request.buffer] = true;
    one->pushes++;
    request.norm = 0;
    request.digest = group_share(sim, 1, one->buffers[request.buffer]);
    if (sim->hostile && chance(&sim->random, 0.02 * sim->settings.trouble)) {
        request.basis++;
        sim->counts.parted_bases++;
    }
    worker_step(sim, 1, (struct session_event){.kind = SESSION_PUSH, .push = request});
}

void group_ends(struct sim *sim)
{
    sim->counts.group_ends++;
    sim->group_starts++;
    sim_tell(sim, "the group ends, and starts anew");
    for (uint32_t r = 0; r < RANKS; r++) {
        if (sim->actors[actor_worker(r)].alive)
            worker_exit(sim, r);
        sim->workers[r].out = false;
        memset(sim->workers[r].busy, 0, sizeof sim->workers[r].busy);
        worker_restart_later(sim, r);
    }
}
