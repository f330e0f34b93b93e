/* Arrays of the caller, between the ranks of a group only. */
#include "client/group_internal.h"

static gradweir_status array_given(const float *array, const char *name, size_t n)
{
    if (n > PTRDIFF_MAX / sizeof(float))
        return fail(GRADWEIR_ERR_INVALID, "%s: %zu floats are more than memory has", name, n);
    if (n && !array)
        return fail(GRADWEIR_ERR_INVALID, "%s is NULL, and has %zu floats", name, n);
    return GRADWEIR_OK;
}

/* Parts of all ranks, one after another, and this rank's own. */
static gradweir_status parts_given(const gradweir_ranks *group, const float *all, const float *own,
                                   const size_t *counts)
{
    size_t sum = 0;
    TRY(client_given(counts, "counts"));
    for (uint32_t i = 0; i < group->count; i++) {
        if (counts[i] > SIZE_MAX - sum)
            return fail(GRADWEIR_ERR_INVALID, "counts: their sum is more than memory has");
        sum += counts[i];
    }
    TRY(array_given(all, "the array of all parts", sum));
    return array_given(own, "the array of this rank's part", counts[group->rank]);
}

gradweir_status gradweir_group_reduce(gradweir_ranks *group, const float *from, float *to, size_t n)
{
    TRY(client_given(group, "group"));
    TRY(array_given(from, "from", n));
    TRY(array_given(to, "to", n));
    TRY(group_whole(group, "reduce"));
    return group_note(group, collective_reduce(group->ranks, group->step, from, to, n));
}

gradweir_status gradweir_group_reduce_scatter(gradweir_ranks *group, const float *from, float *to,
                                              const size_t *counts)
{
    TRY(client_given(group, "group"));
    TRY(group_whole(group, "reduce_scatter"));
    TRY(parts_given(group, from, to, counts));
    return group_note(group,
                      collective_reduce_scatter(group->ranks, group->step, from, to, counts));
}

gradweir_status gradweir_group_all_gather(gradweir_ranks *group, const float *from, float *to,
                                          const size_t *counts)
{
    TRY(client_given(group, "group"));
    TRY(group_whole(group, "all_gather"));
    TRY(parts_given(group, to, from, counts));
    return group_note(group, collective_all_gather(group->ranks, group->step, from, to, counts));
}

gradweir_status gradweir_group_broadcast(gradweir_ranks *group, float *data, size_t n,
                                         uint32_t root)
{
    TRY(client_given(group, "group"));
    TRY(array_given(data, "data", n));
    TRY(group_whole(group, "broadcast"));
    return group_note(group, collective_broadcast(group->ranks, group->step, data, n, root));
}

gradweir_status gradweir_group_barrier(gradweir_ranks *group)
{
    TRY(client_given(group, "group"));
    TRY(group_whole(group, "barrier"));
    return group_note(group, collective_reduce(group->ranks, group->step, NULL, NULL, 0));
}
