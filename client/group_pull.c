/* First parameters, and pulls: one version at all ranks; and ranks that wait are taken in. */
#include "client/group_internal.h"

#include "common/clock.h"

#include <string.h>

enum { TRIES = 16 };

/* The caller's parameters, whole. */
static void load_offer(struct gradweir_ranks *group)
{
    for (size_t i = 0; i < group->tensors_count; i++) {
        const struct group_tensor *tensor = &group->tensors[i];
        const float *from = tensor->tensor.parameters;
        float *to = group->whole + tensor->at;
        if (tensor->tensor.kind == GRADWEIR_MOMENTS || !from)
            continue;
        if (tensor->own)
            group_spread(tensor, &tensor->part, from, to);
        else if (from != to)
            memcpy(to, from, tensor->elements * sizeof *to);
    }
}

gradweir_status gradweir_group_offer(gradweir_ranks *group, uint32_t timeout_ms)
{
    TRY(client_given(group, "group"));
    TRY(group_whole(group, "offer"));
    if (!group->client)
        return fail(GRADWEIR_ERR_STATE, "offer comes after bind");
    load_offer(group);
    return gradweir_offer(group->client, timeout_ms);
}

/* What was pulled, to the caller's own arrays. */
static void store(const struct gradweir_ranks *group)
{
    for (size_t i = 0; i < group->tensors_count && !group->lent; i++) {
        const struct group_tensor *tensor = &group->tensors[i];
        if (tensor->tensor.kind == GRADWEIR_PARAMETER && !tensor->own && tensor->tensor.parameters)
            memcpy(tensor->tensor.parameters, group->whole + tensor->at,
                   tensor->elements * sizeof(float));
    }
}

/* This rank's boxes: of the newest version, or of exactly that. */
static gradweir_status pull_boxes(struct gradweir_ranks *group, uint64_t exactly,
                                  gradweir_receipt *receipt)
{
    gradweir_pull_options options;
    gradweir_ticket ticket;
    gradweir_pull_options_default_sized(&options, sizeof options);
    options.boxes = group->boxes;
    options.boxes_count = group->boxes_count;
    options.exact = exactly > 0;
    options.version = exactly;
    TRY(gradweir_pull_with(group->client, &options, &ticket));
    return gradweir_wait(group->client, ticket, group_share_ms(group), receipt);
}

/* All ranks hear of what one of them has failed by, and say the same. */
static gradweir_status worst(const struct gradweir_ranks *group, const struct group_words *all)
{
    for (uint32_t i = 0; i < group->count; i++)
        if (all[i].status != GRADWEIR_OK && all[i].status != GRADWEIR_ERR_REFUSED)
            return i == group->rank
                       ? (gradweir_status)all[i].status
                       : fail((gradweir_status)all[i].status, "pull: rank %u of %u failed: %s",
                              group->names[i], group->client_options.ranks,
                              gradweir_status_text((gradweir_status)all[i].status));
    return GRADWEIR_OK;
}

/* One try: *newest is what the next one asks for; 0: they all have it, version tells. */
static gradweir_status pull_once(struct gradweir_ranks *group, uint64_t *newest, uint32_t *waiting,
                                 gradweir_receipt *receipt)
{
    struct group_words all[GRADWEIR_RANKS_MAX], mine = {.step = group->step};
    mine.status = pull_boxes(group, *newest, receipt);
    mine.version = receipt->version;
    mine.waiting = group->fixed ? 0 : group->client->called & ~group_names(group);
    TRY(group_say(group, &mine, all));
    TRY(worst(group, all));
    uint64_t most = 0, least = UINT64_MAX;
    bool refused = false;
    for (uint32_t i = 0; i < group->count; i++) {
        most = all[i].version > most ? all[i].version : most;
        least = all[i].version < least ? all[i].version : least;
        refused |= all[i].status == GRADWEIR_ERR_REFUSED;
        *waiting |= all[i].waiting;
    }
    *newest = refused || most != least ? most : 0;
    return GRADWEIR_OK;
}

static gradweir_status gather(struct gradweir_ranks *group)
{
    if (group->shared_elements == 0)
        return GRADWEIR_OK;
    return group_note(group,
                      collective_all_gather(group->ranks, group->step, group->whole + group->begin,
                                            group->whole, group->counts));
}

static gradweir_status pull(struct gradweir_ranks *group, gradweir_receipt *receipt)
{
    uint64_t newest = 0;
    uint32_t waiting = 0;
    const uint64_t deadline_ns = deadline_after(clock_now_ns(), group->timeout_ns);
    for (uint32_t i = 0; i == 0 || newest > 0 || waiting; i++) {
        if (waiting) { /* all have heard of them */
            TRY(group_meet(group, group_names(group) | waiting, group->patience_ns));
            newest = waiting = 0;
        }
        TRY(pull_once(group, &newest, &waiting, receipt));
        if (i >= TRIES && deadline_passed(clock_now_ns(), deadline_ns))
            return fail(GRADWEIR_ERR_TIMEOUT,
                        "pull: the ranks do not get one version: steps come faster than slices");
    }
    TRY(gather(group));
    store(group);
    group->version = receipt->version;
    return GRADWEIR_OK;
}

gradweir_status gradweir_group_pull(gradweir_ranks *group, gradweir_receipt *receipt)
{
    gradweir_receipt own;
    TRY(client_given(group, "group"));
    TRY(group_whole(group, "pull"));
    if (!group->client)
        return fail(GRADWEIR_ERR_STATE, "pull comes after bind");
    const gradweir_status status = pull(group, &own);
    /* All have heard of a mismatch, in the same call: they are level, and the group is whole. */
    group->broken |= status != GRADWEIR_OK && status != GRADWEIR_ERR_MISMATCH;
    if (status == GRADWEIR_OK && receipt)
        *receipt = own;
    return status;
}
