/* How ranks find one another, by rounds of the coordinator, and what follows when one is lost.
 *
 *   join ------------> meeting of all --+
 *   pull, others wait > meeting of the present ones and those --+--> linked, connected --> whole
 *   renew, left out --> meeting, until the others come to it ---+           ^         |
 *   renew, else ------> shrink: those that a roll-call finds ---------------+      broken
 *
 * A rank that is slow by seconds may come to a meeting, or to a roll-call, when it is over, and go
 * on by itself: two groups of one name. Whichever joins the coordinator last fences the other off,
 * and who is fenced off is left out: it waits for the other to take it in, so they come together. A
 * group that lacks nobody was fenced off by another start of the job: it is out for good. */
#include "client/group_internal.h"

#include "common/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t group_names(const struct gradweir_ranks *group)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < group->count; i++)
        bits |= UINT32_C(1) << group->names[i];
    return bits;
}

gradweir_status group_whole(const struct gradweir_ranks *group, const char *what)
{
    if (group->ranks && !group->broken)
        return GRADWEIR_OK;
    return fail(GRADWEIR_ERR_STATE, "%s: the group is broken: renew or leave it", what);
}

gradweir_status group_note(struct gradweir_ranks *group, gradweir_status status)
{
    if (group->ranks) {
        struct collective_info info;
        collective_tell(group->ranks, &info);
        group->broken |= info.broken;
        group->left_out |= info.left_out;
    }
    return status;
}

uint32_t group_share_ms(const struct gradweir_ranks *group)
{
    return (uint32_t)((group->timeout_ns - group->patience_ns) / 2 / CLOCK_MS) + 1;
}

gradweir_status group_say(struct gradweir_ranks *group, const struct group_words *mine,
                          struct group_words *all)
{
    enum { FLOATS = sizeof *mine / sizeof(float) };
    static_assert(sizeof *mine % sizeof(float) == 0, "words travel as floats, bit by bit");
    size_t counts[GRADWEIR_RANKS_MAX];
    for (uint32_t i = 0; i < group->count; i++)
        counts[i] = FLOATS;
    float from[FLOATS], to[FLOATS * GRADWEIR_RANKS_MAX];
    memcpy(from, mine, sizeof from);
    TRY(group_note(group, collective_all_gather(group->ranks, group->step, from, to, counts)));
    memcpy(all, to, group->count * sizeof *all);
    return GRADWEIR_OK;
}

/* collective_exchange, by the coordinator. The coordinator's patience ends before ours, so that its
 * answer is here in time. */
static gradweir_status exchange(void *context, struct collective_round *round)
{
    struct gradweir_ranks *group = context;
    struct swap_round swapped = {.all = round->all};
    struct message_swap say = {.meeting = group->meeting,
                               .round = (uint32_t)round->number + 1,
                               .ranks = group->met,
                               .bytes = (uint32_t)round->bytes};
    if (round->bytes > SWAP_BYTES_MAX)
        return fail(GRADWEIR_ERR_FULL, "a rank's word of %zu bytes: at most %d", round->bytes,
                    SWAP_BYTES_MAX);
    memcpy(say.data, round->mine, round->bytes);
    for (uint32_t r = 0; r < group->met; r++) {
        say.asked |= (round->here[r] ? UINT32_C(1) : 0) << r;
        if (group->met_names[r] == group->client_options.rank)
            say.rank = r;
    }
    const uint64_t now_ns = clock_now_ns();
    const uint64_t left_ns = round->deadline_ns > now_ns ? round->deadline_ns - now_ns : 0;
    say.patience_ms = (uint32_t)(left_ns / 10 * 9 / CLOCK_MS);
    TRY(client_swap(group->channel, &say, round->deadline_ns, &swapped));
    for (uint32_t r = 0; r < group->met; r++)
        round->here[r] = swapped.here >> r & 1;
    return GRADWEIR_OK;
}

static void name_absent(const struct swap_round *round, uint32_t ranks, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t r = 0; r < ranks; r++)
        if (!(round->here >> r & 1) && used < size)
            used +=
                (size_t)snprintf(text + used, size - used, "%srank %" PRIu32, used ? ", " : "", r);
}

/* The meeting itself: who comes, and the number by which they know each other. */
static gradweir_status assemble(struct gradweir_ranks *group, uint32_t asked, uint64_t patience_ns)
{
    uint8_t nothing;
    struct swap_round round = {.all = &nothing};
    struct message_swap say = {.rank = group->client_options.rank,
                               .ranks = group->client_options.ranks,
                               .asked = asked,
                               .patience_ms = (uint32_t)(patience_ns / 10 * 9 / CLOCK_MS)};
    TRY(client_swap(group->channel, &say, deadline_after(clock_now_ns(), patience_ns), &round));
    if ((round.here & round.asked) != round.asked) {
        char text[256];
        name_absent(&round, say.ranks, text, sizeof text);
        return fail(GRADWEIR_ERR_TIMEOUT, "%s of %" PRIu32 " of %s never came", text, say.ranks,
                    group->client_options.identity);
    }
    group->met = 0;
    for (uint32_t r = 0; r < say.ranks; r++) {
        if (!(round.here >> r & 1))
            continue;
        if (r == say.rank)
            group->rank = group->met;
        group->met_names[group->met++] = r;
    }
    memcpy(group->names, group->met_names, sizeof group->names);
    group->count = group->met;
    group->meeting = round.meeting;
    group->shrunk = 0;
    return GRADWEIR_OK;
}

static gradweir_status link_up(struct gradweir_ranks *group)
{
    struct collective_options options = collective_defaults();
    options.backend = group->backend;
    options.rank = group->rank;
    options.ranks = group->count;
    options.address = group->listen;
    options.timeout_ns = group->timeout_ns;
    options.patience_ns = group->patience_ns;
    options.generation = (uint32_t)group->meeting;
    options.exchange = exchange;
    options.exchange_context = group;
    memcpy(options.called, group->names, sizeof group->names);
    options.called_of = group->client_options.ranks;
    return collective_join(&options, &group->ranks);
}

/* A rank that is new counts as the others do. */
static gradweir_status count_alike(struct gradweir_ranks *group)
{
    struct group_words all[GRADWEIR_RANKS_MAX];
    const struct group_words mine = {.step = group->step};
    group->step = 0; /* in which all are */
    TRY(group_say(group, &mine, all));
    for (uint32_t i = 0; i < group->count; i++)
        group->step = all[i].step > group->step ? all[i].step : group->step;
    return GRADWEIR_OK;
}

gradweir_status group_meet(struct gradweir_ranks *group, uint32_t asked, uint64_t patience_ns)
{
    collective_leave(group->ranks);
    group->ranks = NULL;
    group_disconnect(group);
    group->broken = true;
    group->waiting = 0;
    TRY(assemble(group, asked, patience_ns));
    TRY(link_up(group));
    TRY(count_alike(group));
    if (group->tensors)
        TRY(group_connect(group));
    group->broken = group->left_out = group->fenced = false;
    return GRADWEIR_OK;
}

/* The places of those that are left. */
static void renumber(struct gradweir_ranks *group)
{
    struct collective_info info;
    collective_tell(group->ranks, &info);
    group->rank = info.rank;
    group->count = info.ranks;
    for (uint32_t i = 0; i < info.ranks; i++)
        group->names[i] = group->met_names[info.names[i]];
}

/* Whether another group of this name has taken the coordinator from this one. */
static void see_fence(struct gradweir_ranks *group)
{
    if (group->client && gradweir_progress(group->client) == GRADWEIR_ERR_FENCED)
        group->fenced = true;
    group->left_out |= group->fenced && group->count < group->client_options.ranks;
}

static gradweir_status shrink(struct gradweir_ranks *group)
{
    struct collective_info info;
    collective_tell(group->ranks, &info);
    if (!info.broken)
        collective_abort(group->ranks);
    group_disconnect(group);
    TRY(collective_shrink(group->ranks));
    renumber(group);
    group->shrunk++;
    if (group->fenced)
        return fail(GRADWEIR_ERR_FENCED, "another group has joined as %.60s",
                    group->client_options.identity);
    if (group->tensors)
        TRY(group_connect(group));
    return GRADWEIR_OK;
}

gradweir_status gradweir_group_renew(gradweir_ranks *group)
{
    TRY(client_given(group, "group"));
    if (!group->broken)
        return fail(GRADWEIR_ERR_STATE, "renew: the group is whole");
    if (group->said_count)
        return fail(GRADWEIR_ERR_UNSUPPORTED, "renew: nobody else has the parts of the ranks that "
                                              "are missing: leave, and join anew");
    see_fence(group);
    if (group->left_out)
        return group_meet(group, 0, group->timeout_ns);
    if (!group->ranks)
        return group_meet(group, group_names(group), group->patience_ns);
    const gradweir_status status = shrink(group);
    group->broken = status != GRADWEIR_OK;
    group_note(group, status);
    see_fence(group);
    return group->left_out ? group_meet(group, 0, group->timeout_ns) : status;
}
