/* A group above any backend: who is in it and under which number, the deadline of each call, and
 * shrink. What follows when a call fails is in collective_roll.c. */
#include "common/collective_group.h"

#include "common/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The ranks that are in `asked` and not here, as "rank 2, rank 5 of 8"; how many. */
static uint32_t absent(const struct collective *group, const bool *asked, char *text, size_t size)
{
    uint32_t n = 0;
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t r = 0; r < group->options.ranks; r++) {
        if (!asked[r] || group->here[r])
            continue;
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, "%srank %" PRIu32,
                                     n == 0 ? "" : ", ", group_called(group, r));
        n++;
    }
    if (used < size)
        snprintf(text + used, size - used, " of %" PRIu32, group_called_of(group));
    return n;
}

/* The members that are here get their present numbers; what was seen of them stays theirs. */
static void number(struct collective *group)
{
    struct collective_seen seen[COLLECTIVE_RANKS_MAX] = {{0}};
    for (uint32_t i = 0; i < group->ranks; i++)
        seen[group->names[i]] = group->seen[i];
    group->ranks = 0;
    for (uint32_t r = 0; r < group->options.ranks; r++) {
        if (!group->here[r])
            continue;
        if (r == group->options.rank)
            group->rank = group->ranks;
        group->seen[group->ranks] = seen[r];
        group->names[group->ranks++] = r;
    }
}

/* A backend's round among the present members, whose numbers are closer than those of the join. */
static gradweir_status swap(void *context, const void *mine, size_t bytes, void *all,
                            uint64_t deadline_ns)
{
    struct collective *group = context;
    const size_t size = bytes * group->options.ranks;
    if (size > group->swapped_size) {
        char *more = realloc(group->swapped, size);
        if (more == NULL)
            return fail(GRADWEIR_ERR_NO_MEMORY, "group: no memory for a swap of %zu bytes", size);
        group->swapped = more;
        group->swapped_size = size;
    }
    bool asked[COLLECTIVE_RANKS_MAX];
    memcpy(asked, group->here, sizeof asked);
    TRY(group_exchange(group, mine, bytes, group->swapped, deadline_ns));
    char text[256];
    if (absent(group, asked, text, sizeof text) != 0)
        return fail(GRADWEIR_ERR_TIMEOUT, "group: %s did not come to connect", text);
    for (uint32_t r = 0; r < group->ranks; r++)
        memcpy((char *)all + r * bytes, group->swapped + group->names[r] * bytes, bytes);
    return GRADWEIR_OK;
}

static struct collective_members members_of(struct collective *group, uint64_t deadline_ns)
{
    return (struct collective_members){.name = group->name,
                                       .rank = group->rank,
                                       .ranks = group->ranks,
                                       .address = group->options.address,
                                       .deadline_ns = deadline_ns,
                                       .seen = group->seen,
                                       .swap = swap,
                                       .swap_context = group};
}

static gradweir_status check_options(const struct collective_options *options)
{
    if (options->backend == NULL || options->address == NULL || options->exchange == NULL)
        return fail(GRADWEIR_ERR_INVALID, "group: backend, address and exchange must be given");
    if (collective_find(options->backend) == NULL)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "group: this build has no backend \"%s\"",
                    options->backend);
    if (options->ranks == 0 || options->ranks > COLLECTIVE_RANKS_MAX ||
        options->rank >= options->ranks)
        return fail(GRADWEIR_ERR_INVALID,
                    "group: rank %" PRIu32 " of %" PRIu32 " (at most %d ranks, counted from 0)",
                    options->rank, options->ranks, COLLECTIVE_RANKS_MAX);
    if (options->patience_ns < CLOCK_MS || options->patience_ns > options->timeout_ns / 2)
        return fail(GRADWEIR_ERR_INVALID,
                    "group: timeout %" PRIu64 " ms, and a patience of %" PRIu64
                    " ms, which may be from 1 ms to half of that",
                    options->timeout_ns / CLOCK_MS, options->patience_ns / CLOCK_MS);
    return GRADWEIR_OK;
}

static gradweir_status check_hello(const struct collective *group, uint32_t r)
{
    const struct hello *hello = &group->hellos[r];
    if (hello->magic != HELLO_MAGIC)
        return fail(GRADWEIR_ERR_PROTOCOL, "group: rank %" PRIu32 " speaks another language", r);
    if (hello->rank != r)
        return fail(GRADWEIR_ERR_MISMATCH, "group: rank %" PRIu32 " says that it is rank %" PRIu32,
                    r, hello->rank);
    if (hello->ranks != group->options.ranks)
        return fail(GRADWEIR_ERR_MISMATCH,
                    "group: rank %" PRIu32 " expects %" PRIu32 " ranks, rank %" PRIu32
                    " expects %" PRIu32,
                    r, hello->ranks, group->options.rank, group->options.ranks);
    if (strncmp(hello->backend, group->options.backend, sizeof hello->backend - 1) != 0)
        return fail(GRADWEIR_ERR_MISMATCH, "group: rank %" PRIu32 " has backend %.15s, not %s", r,
                    hello->backend, group->options.backend);
    if (hello->status != GRADWEIR_OK)
        return fail((gradweir_status)hello->status, "group: rank %" PRIu32 " could not name it", r);
    return GRADWEIR_OK;
}

/* The first round: everybody is there, says the same, and knows rank 0's name of the group. */
static gradweir_status meet(struct collective *group, uint64_t deadline_ns)
{
    for (uint32_t r = 0; r < group->options.ranks; r++)
        group->here[r] = true;
    bool asked[COLLECTIVE_RANKS_MAX];
    memcpy(asked, group->here, sizeof asked);
    gradweir_status named = GRADWEIR_OK;
    if (group->options.rank == 0)
        named = group->functions->name_group(&group->name);
    const struct hello mine = group_hello(group, named);
    TRY(group_exchange(group, &mine, sizeof mine, group->hellos, deadline_ns));
    char text[256];
    for (uint32_t r = 0; r < group->options.ranks; r++)
        if (group->here[r])
            TRY(check_hello(group, r));
    if (absent(group, asked, text, sizeof text) != 0)
        return fail(GRADWEIR_ERR_TIMEOUT, "group: %s never came", text);
    group->name = group->hellos[0].name;
    number(group);
    return GRADWEIR_OK;
}

/* The link is of the present members. */
static void linked(struct collective *group)
{
    memcpy(group->linked, group->names, sizeof group->linked);
    group->linked_n = group->ranks;
}

gradweir_status collective_join(const struct collective_options *options, struct collective **group)
{
    TRY(check_options(options));
    struct collective *new = calloc(1, sizeof *new);
    if (new == NULL)
        return fail(GRADWEIR_ERR_NO_MEMORY, "group: no memory");
    new->options = *options;
    new->functions = collective_find(options->backend);
    const uint64_t deadline_ns = deadline_after(clock_now_ns(), options->timeout_ns);
    gradweir_status status = meet(new, deadline_ns);
    if (status == GRADWEIR_OK) {
        const struct collective_members members = members_of(new, deadline_ns);
        status = new->functions->join(&members, &new->link);
    }
    if (status != GRADWEIR_OK) {
        collective_leave(new);
        return status;
    }
    linked(new);
    *group = new;
    return GRADWEIR_OK;
}

void collective_leave(struct collective *group)
{
    if (group == NULL)
        return;
    group->functions->leave(group->link);
    free(group->swapped);
    free(group);
}

void collective_tell(const struct collective *group, struct collective_info *info)
{
    *info = (struct collective_info){.rank = group->rank,
                                     .ranks = group->ranks,
                                     .step_least = group->step_least,
                                     .step_most = group->step_most,
                                     .broken = group->broken,
                                     .left_out = group->left_out};
    memcpy(info->names, group->names, sizeof info->names);
}

void collective_abort(struct collective *group)
{
    group->functions->abort(group->link);
    group->broken = true;
    group->called = false;
}

typedef gradweir_status (*backend_call)(struct collective_link *link,
                                        const struct collective_call *call);

static gradweir_status run(struct collective *group, const char *what, backend_call function,
                           struct collective_call *call)
{
    if (group->broken)
        return fail(GRADWEIR_ERR_STATE, "%s: the group is broken: shrink or leave", what);
    call->deadline_ns =
        deadline_after(clock_now_ns(), group->options.timeout_ns - group->options.patience_ns);
    const gradweir_status status = function(group->link, call);
    if (status == GRADWEIR_OK)
        group->step = call->step;
    if (status == GRADWEIR_OK || status == GRADWEIR_ERR_MISMATCH)
        return status;
    return group_broke(group, what, status, call);
}

gradweir_status collective_reduce(struct collective *group, uint64_t step, const float *from,
                                  float *to, size_t n)
{
    struct collective_call call = {.step = step, .from = from, .to = to, .n = n};
    return run(group, "reduce", group->functions->reduce, &call);
}

gradweir_status collective_reduce_scatter(struct collective *group, uint64_t step,
                                          const float *from, float *to, const size_t *counts)
{
    struct collective_call call = {.step = step, .from = from, .to = to, .counts = counts};
    return run(group, "reduce_scatter", group->functions->reduce_scatter, &call);
}

gradweir_status collective_all_gather(struct collective *group, uint64_t step, const float *from,
                                      float *to, const size_t *counts)
{
    struct collective_call call = {.step = step, .from = from, .to = to, .counts = counts};
    return run(group, "all_gather", group->functions->all_gather, &call);
}

gradweir_status collective_broadcast(struct collective *group, uint64_t step, float *data, size_t n,
                                     uint32_t root)
{
    if (root >= group->ranks)
        return fail(GRADWEIR_ERR_INVALID, "broadcast: root %" PRIu32 " of %" PRIu32, root,
                    group->ranks);
    struct collective_call call = {.step = step, .from = data, .to = data, .n = n, .root = root};
    return run(group, "broadcast", group->functions->broadcast, &call);
}

gradweir_status collective_failed(struct collective *group, const char *what, uint64_t step,
                                  gradweir_status why)
{
    const struct collective_call call = {.step = step, .deadline_ns = clock_now_ns()};
    return group->broken ? why : group_broke(group, what, why, &call);
}

gradweir_status collective_shrink(struct collective *group)
{
    if (!group->broken || group->left_out)
        return fail(GRADWEIR_ERR_STATE, "shrink: %s",
                    group->left_out ? "the others have gone on without this rank"
                                    : "the group is whole");
    gradweir_status why = GRADWEIR_OK;
    if (!group->called)
        TRY(group_call_roll(group, &why));
    bool kept[COLLECTIVE_RANKS_MAX] = {false};
    for (uint32_t i = 0; i < group->linked_n; i++)
        kept[i] = group->here[group->linked[i]];
    group->called = false; /* whatever follows, the next one asks again */
    number(group);
    const struct collective_members members =
        members_of(group, deadline_after(clock_now_ns(), group->options.timeout_ns));
    struct collective_link *link;
    TRY(group->functions->shrink(group->link, kept, &members, &link));
    group->functions->leave(group->link);
    group->link = link;
    linked(group);
    group->broken = false;
    return GRADWEIR_OK;
}
