/* Arrays of the caller, between the ranks of a group only. */
#include "client/group_internal.h"

gradweir_status gradweir_group_reduce(gradweir_ranks *group, const float *from, float *to, size_t n)
{
    TRY(client_given(group, "group"));
    TRY(group_whole(group, "reduce"));
    return group_note(group, collective_reduce(group->ranks, group->step, from, to, n));
}

gradweir_status gradweir_group_reduce_scatter(gradweir_ranks *group, const float *from, float *to,
                                              const size_t *counts)
{
    TRY(client_given(group, "group"));
    TRY(client_given(counts, "counts"));
    TRY(group_whole(group, "reduce_scatter"));
    return group_note(group,
                      collective_reduce_scatter(group->ranks, group->step, from, to, counts));
}

gradweir_status gradweir_group_all_gather(gradweir_ranks *group, const float *from, float *to,
                                          const size_t *counts)
{
    TRY(client_given(group, "group"));
    TRY(client_given(counts, "counts"));
    TRY(group_whole(group, "all_gather"));
    return group_note(group, collective_all_gather(group->ranks, group->step, from, to, counts));
}

gradweir_status gradweir_group_broadcast(gradweir_ranks *group, float *data, size_t n,
                                         uint32_t root)
{
    TRY(client_given(group, "group"));
    TRY(group_whole(group, "broadcast"));
    return group_note(group, collective_broadcast(group->ranks, group->step, data, n, root));
}

gradweir_status gradweir_group_barrier(gradweir_ranks *group)
{
    TRY(client_given(group, "group"));
    TRY(group_whole(group, "barrier"));
    return group_note(group, collective_reduce(group->ranks, group->step, NULL, NULL, 0));
}
