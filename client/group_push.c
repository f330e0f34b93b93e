/* Pushes: what all ranks have, in the order of ranks, and each sends its part of it.
 *
 * The arithmetic is that of gradweir_accumulate, so that a group has the bits of one worker that
 * accumulates what each of its ranks had: sums of (float)samples x gradient, from 0 on, divided by
 * (float)all samples. */
#include "client/group_internal.h"

#include "common/clock.h"

#include <string.h>

/* Adds to the sums of this rank, or makes them; a product of -0 becomes the 0 that a sum from 0 on
 * has. */
static void weigh(float *to, const float *from, uint64_t n, float samples, bool adds)
{
    for (uint64_t i = 0; adds && i < n; i++)
        to[i] += samples * from[i];
    for (uint64_t i = 0; !adds && i < n; i++)
        to[i] = samples * from[i] + 0.0f;
}

static void weigh_moments(struct gradweir_ranks *group, const struct group_tensor *tensor,
                          bool adds)
{
    const struct moments *from = tensor->tensor.gradient;
    struct moments *to = group->moments + tensor->at;
    if (!adds)
        memset(to, 0, tensor->elements * sizeof *to);
    for (uint64_t k = 0; from && k < tensor->elements; k++)
        moments_merge(&to[k], &from[k]);
}

/* All tensors of this rank. */
static void weigh_all(struct gradweir_ranks *group, uint64_t samples, bool adds)
{
    for (size_t i = 0; i < group->tensors_count; i++) {
        const struct group_tensor *tensor = &group->tensors[i];
        const float *from = tensor->tensor.gradient;
        if (tensor->tensor.kind == GRADWEIR_MOMENTS) {
            weigh_moments(group, tensor, adds);
            continue;
        }
        float *to = group->sum + (tensor->own ? tensor->sum_at : tensor->at);
        const uint64_t n = tensor->own ? group_part_elements(tensor) : tensor->elements;
        if (from && samples > 0)
            weigh(to, from, n, (float)samples, adds);
        else if (!adds)
            memset(to, 0, n * sizeof *to);
    }
}

static gradweir_status has_gradients(const struct gradweir_ranks *group)
{
    for (size_t i = 0; i < group->tensors_count; i++) {
        const gradweir_tensor *tensor = &group->tensors[i].tensor;
        const bool frozen =
            tensor->group < group->groups_count && group->groups[tensor->group].frozen;
        const bool none = group->tensors[i].own && group->tensors[i].part.count == 0;
        if (!tensor->gradient && !frozen && !none)
            return fail(GRADWEIR_ERR_INVALID, "tensor %s has no gradient memory", tensor->name);
    }
    return GRADWEIR_OK;
}

static gradweir_status may_push(const struct gradweir_ranks *group, const char *what)
{
    TRY(client_given(group, "group"));
    TRY(group_whole(group, what));
    if (!group->client)
        return fail(GRADWEIR_ERR_STATE, "%s comes after bind", what);
    return has_gradients(group);
}

gradweir_status gradweir_group_accumulate(gradweir_ranks *group, uint64_t samples)
{
    TRY(may_push(group, "accumulate"));
    if (samples == 0 || samples > UINT32_MAX)
        return fail(GRADWEIR_ERR_INVALID, "samples is %llu: 1 to %u are allowed",
                    (unsigned long long)samples, UINT32_MAX);
    weigh_all(group, samples, group->gathered > 0);
    group->gathered += samples;
    return GRADWEIR_OK;
}

/* What ranks say before their floats; the samples of all. */
static gradweir_status agree(struct gradweir_ranks *group, uint64_t samples, uint64_t *total)
{
    struct group_words all[GRADWEIR_RANKS_MAX];
    const struct group_words mine = {
        .version = group->version, .samples = samples, .step = group->step};
    TRY(group_say(group, &mine, all));
    *total = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        if (all[i].version != group->version || (group->shared && all[i].samples != samples))
            return fail(GRADWEIR_ERR_MISMATCH,
                        "push: rank %u of %u has %llu samples of version %llu, rank %u %llu of "
                        "version %llu",
                        group->names[i], group->client_options.ranks,
                        (unsigned long long)all[i].samples, (unsigned long long)all[i].version,
                        group->client_options.rank, (unsigned long long)samples,
                        (unsigned long long)group->version);
        *total += group->shared ? 0 : all[i].samples;
    }
    *total = group->shared ? samples : *total;
    if (*total == 0 || *total > SAMPLES_MAX)
        return fail(GRADWEIR_ERR_INVALID, "push: %llu samples of all ranks: 1 to 2^53 are allowed",
                    (unsigned long long)*total);
    return GRADWEIR_OK;
}

static void divide(float *to, const float *from, uint64_t n, float by)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] = from[i] / by;
}

/* MOMENTS of all ranks, merged in their order. */
static gradweir_status merge(struct gradweir_ranks *group)
{
    const uint64_t n = group->moments_count;
    size_t counts[GRADWEIR_RANKS_MAX];
    if (n == 0)
        return GRADWEIR_OK;
    for (uint32_t i = 0; i < group->count; i++)
        counts[i] = (size_t)(n * sizeof(struct moments) / sizeof(float));
    TRY(group_note(group, collective_all_gather(group->ranks, group->step,
                                                (const float *)(const void *)group->moments,
                                                (float *)(void *)group->all_moments, counts)));
    for (uint32_t i = 1; i < group->count && !group->shared; i++)
        for (uint64_t k = 0; k < n; k++)
            moments_merge(&group->all_moments[k], &group->all_moments[i * n + k]);
    return GRADWEIR_OK;
}

/* The part that this rank pushes. */
static gradweir_status reduce(struct gradweir_ranks *group, uint64_t samples, uint64_t total)
{
    const uint64_t cut = group->counts[group->rank];
    if (group->shared)
        divide(group->part, group->sum + group->begin, cut, (float)samples);
    else if (group->shared_elements > 0) {
        TRY(group_note(group, collective_reduce_scatter(group->ranks, group->step, group->sum,
                                                        group->part, group->counts)));
        divide(group->part, group->part, cut, (float)total);
    }
    if (samples > 0)
        divide(group->part + cut, group->sum + group->shared_elements, group->own_elements,
               (float)samples);
    return merge(group);
}

static gradweir_status push(struct gradweir_ranks *group, uint64_t samples,
                            gradweir_receipt *receipt)
{
    uint64_t total;
    gradweir_ticket ticket;
    group->step++;
    TRY(agree(group, samples, &total));
    TRY(reduce(group, samples, total));
    gradweir_status status = gradweir_push_from(group->client, total, group->version, &ticket);
    if (status == GRADWEIR_OK)
        status =
            gradweir_wait(group->client, ticket,
                          (uint32_t)((group->timeout_ns - group->patience_ns) / CLOCK_MS), receipt);
    group->broken |= status != GRADWEIR_OK;
    /* A part is missing: its rank stopped or died after the sums. The servers cannot know which. */
    if (status == GRADWEIR_ERR_TIMEOUT && group->ranks)
        status = group_note(group, collective_failed(group->ranks, "push", group->step, status));
    return status;
}

gradweir_status gradweir_group_push(gradweir_ranks *group, uint64_t samples,
                                    gradweir_receipt *receipt)
{
    gradweir_receipt own;
    TRY(may_push(group, "push"));
    if (group->gathered && samples)
        return fail(GRADWEIR_ERR_STATE,
                    "%llu samples are accumulated: push them with samples = 0, or accumulate these "
                    "too",
                    (unsigned long long)group->gathered);
    if (!group->gathered)
        weigh_all(group, samples, false);
    const uint64_t step = group->step;
    const gradweir_status status = push(group, group->gathered ? group->gathered : samples, &own);
    if (status != GRADWEIR_OK) {
        group->step = step;
        return status;
    }
    group->gathered = 0;
    if (receipt)
        *receipt = own;
    return GRADWEIR_OK;
}
