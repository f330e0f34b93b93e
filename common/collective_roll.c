/* What follows when a call of a group fails: connections are cut, the roll is called, and whoever
 * does not answer is named with its last step and its delay. */
#include "common/collective_group.h"

#include "common/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

gradweir_status group_exchange(struct collective *group, const void *mine, size_t bytes, void *all,
                               uint64_t deadline_ns)
{
    struct collective_round round = {.number =
                                         (uint64_t)group->options.generation << 32 | group->rounds,
                                     .mine = mine,
                                     .bytes = bytes,
                                     .all = all,
                                     .here = group->here,
                                     .deadline_ns = deadline_ns};
    TRY(group->options.exchange(group->options.exchange_context, &round));
    group->rounds++; /* one that failed on its way may be tried again: it is open, or closed */
    return GRADWEIR_OK;
}

struct hello group_hello(const struct collective *group, gradweir_status status)
{
    struct hello hello = {.magic = HELLO_MAGIC,
                          .rank = group->options.rank,
                          .ranks = group->options.ranks,
                          .status = status,
                          .generation = group->options.generation,
                          .step = group->step,
                          .name = group->name};
    snprintf(hello.backend, sizeof hello.backend, "%s", group->options.backend);
    return hello;
}

/* 1204 as "1,204". */
static const char *grouped(uint64_t number, char text[32])
{
    char digits[24];
    const int n = snprintf(digits, sizeof digits, "%" PRIu64, number);
    int at = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

/* "rank 3 of 8: step 1,204, 61 s behind" for each member that the roll-call did not find. */
static uint32_t missing(const struct collective *group, uint64_t begun_ns, char *text, size_t size)
{
    uint32_t n = 0;
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < group->ranks; i++) {
        if (group->here[group->names[i]])
            continue;
        const struct collective_seen *seen = &group->seen[i];
        const uint64_t since_ns = seen->at_ns > begun_ns ? seen->at_ns : begun_ns;
        char step[32] = "none", number[32];
        if (seen->at_ns != 0)
            snprintf(step, sizeof step, "%s", grouped(seen->step, number));
        if (used < size)
            used += (size_t)snprintf(text + used, size - used,
                                     "%srank %" PRIu32 " of %" PRIu32 ": step %s, %.1f s behind",
                                     n == 0 ? "" : "; ", group_called(group, group->names[i]),
                                     group_called_of(group), step,
                                     (double)(clock_now_ns() - since_ns) / CLOCK_SECOND);
        n++;
    }
    return n;
}

/* Who is still there: asked of all members, with a patience. All who come know the same ones. */
gradweir_status group_call_roll(struct collective *group, gradweir_status *why)
{
    for (uint32_t r = 0; r < group->options.ranks; r++)
        group->here[r] = false;
    for (uint32_t i = 0; i < group->ranks; i++)
        group->here[group->names[i]] = true;
    const struct hello mine = group_hello(group, *why);
    const gradweir_status status =
        group_exchange(group, &mine, sizeof mine, group->hellos,
                       deadline_after(clock_now_ns(), group->options.patience_ns));
    if (status == GRADWEIR_ERR_LOST) {
        group->left_out = true;
        return fail(GRADWEIR_ERR_LOST,
                    "rank %" PRIu32 " of %" PRIu32 ": the others have gone on without it",
                    group_called(group, group->options.rank), group_called_of(group));
    }
    TRY(status);
    group->called = true;
    group->step_least = group->step_most = group->step;
    for (uint32_t i = 0; i < group->ranks; i++) {
        const struct hello *hello = &group->hellos[group->names[i]];
        if (!group->here[group->names[i]])
            continue;
        if (hello->status == GRADWEIR_ERR_TIMEOUT)
            *why = GRADWEIR_ERR_TIMEOUT;
        if (hello->step < group->step_least)
            group->step_least = hello->step;
        if (hello->step > group->step_most)
            group->step_most = hello->step;
    }
    return GRADWEIR_OK;
}

/* A call has failed: everybody returns, and all say the same about it. */
gradweir_status group_broke(struct collective *group, const char *what, gradweir_status why,
                            const struct collective_call *call)
{
    char reason[512], text[384], number[32];
    snprintf(reason, sizeof reason, "%s", fail_reason());
    const uint64_t begun_ns =
        call->deadline_ns + group->options.patience_ns - group->options.timeout_ns;
    collective_abort(group);
    TRY(group_call_roll(group, &why));
    const uint32_t n = missing(group, begun_ns, text, sizeof text);
    if (n == 0)
        return fail(why, "%s at step %s: all %" PRIu32 " ranks are there, but: %s", what,
                    grouped(call->step, number), group->ranks, reason);
    return fail(why, "%s at step %s: %s", what, grouped(call->step, number), text);
}
