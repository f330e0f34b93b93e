#include "tests/unit/shard_rig.h"

#include <criterion/criterion.h>
#include <string.h>

static struct rig rig;
static uint32_t session;
enum { BODY = RIG_ELEMENTS * 4 + RIG_MOMENTS * 24, CHUNKS = 4 };

static void start(void)
{
    rig_init(&rig, RIG_ELEMENTS);
    rig_start(&rig, 0, 1);
    rig_join(&rig, 0, ROLE_WORKER);
    session = rig_hello(&rig, 0, 50);
    rig_fill(&rig, 0, 1);
    cr_assert(rig_first(&rig, 0, 0));
}

static void end(void)
{
    rig_end(&rig);
}

TestSuite(shard_pulls, .init = start, .fini = end);

static void step(void)
{
    rig_fill(&rig, 1, 1);
    cr_assert(rig_admit(&rig, 0, 1));
    cr_assert(rig_step_one(&rig, 1));
}

static void whole(uint64_t version)
{
    rig_say(&rig, &(struct message){.kind = MESSAGE_WHOLE, .whole = {version}});
}

static struct head_pull pull_head(uint64_t version, uint16_t flags)
{
    return (struct head_pull){.kind = HEAD_PULL,
                              .flags = flags,
                              .session = session,
                              .epoch = 1,
                              .timeline = 1,
                              .ticket = 4,
                              .version = version,
                              .length = UINT64_MAX};
}

static void pull(uint64_t version, uint16_t flags)
{
    const struct head_pull head = pull_head(version, flags);
    rig_head(&rig, 50, &head, 0);
}

static bool reply_of(uint8_t kind, struct head_parameters *head)
{
    const struct shard_action *action = rig_reply(&rig, kind, 0);
    if (action)
        memcpy(head, &action->head, sizeof *head);
    return action != NULL;
}

static void sent(uint64_t token, gradweir_status status)
{
    rig_event(&rig, (struct shard_event){.kind = SHARD_SENT, .token = token, .status = status});
}

Test(shard_pulls, a_body_leaves_in_chunks_from_the_slot_itself)
{
    uint64_t version, bytes = 0;
    char got[BODY];
    pull(0, 0);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        struct head_parameters head;
        const struct shard_action *action = rig_reply(&rig, HEAD_PARAMETERS, i);
        cr_assert_not_null(action);
        memcpy(&head, &action->head, sizeof head);
        cr_assert(head.ticket == 4 && head.total == BODY && head.offset == bytes);
        cr_assert(head.length == action->length && action->length <= RIG_CHUNK && action->token);
        memcpy(got + bytes, shard_address(rig.local->shard, action->offset), action->length);
        bytes += action->length;
    }
    cr_assert_eq(bytes, BODY);
    cr_assert_eq(memcmp(got, shard_parameters(rig.local->shard, &version), BODY), 0);
}

/* An answer in bodies of at most this, each sent when all before it were: how long the longest was.
 */
static uint64_t answer(uint64_t portion, char *got)
{
    const struct head_pull asked = pull_head(0, 0);
    struct head_any any;
    uint64_t tokens[BODY / 64 + 8], bytes = 0, longest = 0;
    uint32_t first = 0, last = 0;
    memcpy(&any, &asked, sizeof any);
    rig_event(&rig, (struct shard_event){
                        .kind = SHARD_OFFERED, .peer = 50, .head = &any, .portion = portion});
    do {
        const struct shard_action *action;
        for (uint32_t i = 0; (action = rig_reply(&rig, HEAD_PARAMETERS, i)) != NULL; i++) {
            struct head_parameters head;
            memcpy(&head, &action->head, sizeof head);
            cr_assert(head.offset == bytes && bytes + head.length <= BODY && head.length > 0);
            memcpy(got + bytes, shard_address(rig.local->shard, action->offset), head.length);
            bytes += head.length;
            longest = head.length > longest ? head.length : longest;
            tokens[last++] = action->token;
        }
        if (first < last)
            sent(tokens[first++], GRADWEIR_OK);
    } while (bytes < BODY && first < last);
    while (first < last)
        sent(tokens[first++], GRADWEIR_OK);
    cr_assert_eq(bytes, BODY);
    return longest;
}

Test(shard_pulls, bodies_are_as_short_as_suits_their_way_and_never_longer_than_a_chunk)
{
    static const uint64_t portions[][2] = {
        {0, RIG_CHUNK}, {63, RIG_CHUNK},        {64, 64},          {200, 192},
        {1000, 960},    {RIG_CHUNK, RIG_CHUNK}, {2000, RIG_CHUNK}, {UINT64_MAX, RIG_CHUNK}};
    uint64_t version;
    for (size_t i = 0; i < sizeof portions / sizeof *portions; i++) {
        char got[BODY];
        cr_assert_eq(answer(portions[i][0], got), portions[i][1]);
        cr_assert_eq(memcmp(got, shard_parameters(rig.local->shard, &version), BODY), 0);
    }
}

Test(shard_pulls, a_slice_is_what_was_asked_for_and_nothing_beyond_the_body)
{
    struct head_parameters head;
    struct head_pull asked = pull_head(0, 0);
    asked.offset = 40;
    asked.length = 80;
    rig_head(&rig, 50, &asked, 0);
    cr_assert(reply_of(HEAD_PARAMETERS, &head) && head.length == 80 && head.total == 80);
    const uint64_t bad[][2] = {
        {BODY, 1},     {BODY + 1, UINT64_MAX},   {1, UINT64_MAX - 1},  {UINT64_MAX, 1},
        {0, BODY + 1}, {UINT64_MAX, UINT64_MAX}, {40, UINT64_MAX - 20}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        asked.offset = bad[i][0];
        asked.length = bad[i][1];
        rig_head(&rig, 50, &asked, 0);
        cr_assert(reply_of(HEAD_GONE, &head) && !rig_reply(&rig, HEAD_PARAMETERS, 0));
    }
}

Test(shard_pulls, a_version_waits_for_all_shards_unless_exactly_it_is_wanted)
{
    struct head_parameters head;
    step();
    pull(1, 0);
    cr_assert(!rig_reply(&rig, HEAD_PARAMETERS, 0) && !rig_reply(&rig, HEAD_GONE, 0));
    pull(1, PULL_EXACT);
    cr_assert(reply_of(HEAD_PARAMETERS, &head) && head.version == 1);
    pull(0, 0);
    cr_assert(reply_of(HEAD_PARAMETERS, &head) && head.version == 0);
    whole(1);
    cr_assert(reply_of(HEAD_PARAMETERS, &head) && head.version == 1);
}

Test(shard_pulls, what_nobody_makes_is_gone_after_patience)
{
    struct head_parameters head;
    pull(9, 0);
    cr_assert_null(rig_reply(&rig, HEAD_GONE, 0));
    const int64_t due_ns = shard_next(rig.local->shard);
    cr_assert_leq(due_ns, rig.now_ns + rig.options.pull_patience_ns);
    rig_tick(&rig, rig.options.pull_patience_ns - 1);
    cr_assert_null(rig_reply(&rig, HEAD_GONE, 0));
    rig_tick(&rig, 1);
    cr_assert(reply_of(HEAD_GONE, &head) && head.version == 0 && head.ticket == 4);
    rig_tick(&rig, rig.options.pull_patience_ns);
    cr_assert_null(rig_reply(&rig, HEAD_GONE, 0));
}

Test(shard_pulls, an_exact_version_that_was_overwritten_is_gone_at_once)
{
    for (uint64_t version = 1; version <= 4; version++) {
        step();
        whole(version);
    }
    struct head_parameters head;
    pull(0, PULL_EXACT);
    cr_assert(reply_of(HEAD_GONE, &head) && head.version == 4);
}

Test(shard_pulls, a_step_waits_rather_than_overwrite_and_late_readers_are_hung_up)
{
    pull(0, 0); /* pins version 0, and never says SENT */
    const uint64_t token = rig_reply(&rig, HEAD_PARAMETERS, 0)->token;
    step();
    whole(1);
    step(); /* 0 pinned, 1 whole, 2 newest: no slot is left */
    step();
    cr_assert_null(rig_sent(&rig, MESSAGE_STEPPED, 0));
    cr_assert_not_null(rig_sent(&rig, MESSAGE_LOGGED, 0)); /* logging does not wait */
    cr_assert_null(rig_action(&rig, SHARD_HANGUP, 0));
    rig_tick(&rig, rig.options.pull_patience_ns + 1);
    cr_assert_eq(rig_action(&rig, SHARD_HANGUP, 0)->peer, 50);
    cr_assert_null(rig_sent(&rig, MESSAGE_STEPPED, 0)); /* the body may still move */
    for (uint32_t i = 0; i < CHUNKS; i++) {
        cr_assert_null(rig_sent(&rig, MESSAGE_STEPPED, 0));
        sent(token, GRADWEIR_ERR_LOST);
    }
    cr_assert_eq(rig_sent(&rig, MESSAGE_STEPPED, 0)->stepped.version, 3);
}

Test(shard_pulls, a_late_reader_of_the_whole_version_holds_nothing_up_and_stays)
{
    pull(0, 0);
    rig_tick(&rig, rig.options.pull_patience_ns + 1);
    step();
    step();
    pull(1, PULL_EXACT);
    const uint64_t token = rig_reply(&rig, HEAD_PARAMETERS, 0)->token;
    step(); /* 0 is whole, 2 is newest, 1 is being read: no slot is left */
    cr_assert_null(rig_sent(&rig, MESSAGE_STEPPED, 0));
    cr_assert_null(rig_action(&rig, SHARD_HANGUP, 0));
    for (uint32_t i = 0; i < CHUNKS; i++)
        sent(token, GRADWEIR_OK);
    cr_assert_eq(rig_sent(&rig, MESSAGE_STEPPED, 0)->stepped.version, 3);
}

Test(shard_pulls, a_lost_reader_frees_its_slot_when_its_bodies_rest)
{
    struct shard_figures figures;
    pull(0, 0);
    const uint64_t token = rig_reply(&rig, HEAD_PARAMETERS, 0)->token;
    for (uint32_t i = 0; i < CHUNKS; i++)
        sent(token, GRADWEIR_ERR_LOST);
    rig_event(&rig, (struct shard_event){.kind = SHARD_PEER_LOST, .peer = 50});
    pull(9, 0); /* the session is over */
    cr_assert_not_null(rig_reply(&rig, HEAD_GONE, 0));
    shard_figures(rig.local->shard, &figures);
    cr_assert(figures.pinned == 0 && figures.pulls_waiting == 0 && figures.sessions == 0);
}

/* Gradient 2 of worker 0: its offer was number 1. */
static void ride(void)
{
    struct head_pull asked = pull_head(0, PULL_AFTER);
    asked.after = 2;
    rig_head(&rig, 50, &asked, 0);
    cr_assert(!rig_reply(&rig, HEAD_PARAMETERS, 0) && !rig_reply(&rig, HEAD_GONE, 0));
}

Test(shard_pulls, one_that_rides_waits_for_the_verdict_and_the_step_behind_it)
{
    struct head_parameters head;
    ride();
    rig_tick(&rig, 1);
    cr_assert(!rig_reply(&rig, HEAD_PARAMETERS, 0));
    rig_fill(&rig, 1, 1);
    cr_assert(rig_admit(&rig, 0, 1));
    cr_assert_leq(shard_next(rig.local->shard), rig.now_ns);
    rig_tick(&rig, 0); /* the step is due, so this waits for it */
    cr_assert(!rig_reply(&rig, HEAD_PARAMETERS, 0));
    cr_assert_gt(shard_next(rig.local->shard), rig.now_ns);
    cr_assert(rig_step_one(&rig, 1));
    cr_assert(!rig_reply(&rig, HEAD_PARAMETERS, 0));
    whole(1);
    cr_assert(reply_of(HEAD_PARAMETERS, &head) && head.version == 1);
}

Test(shard_pulls, one_that_rides_with_a_refused_gradient_gets_what_is_there)
{
    struct head_parameters head;
    struct record record = {.kind = RECORD_REFUSE};
    record.refuse = (struct record_refuse){.name = {.incarnation = 1, .sequence = 2},
                                           .slot = 1,
                                           .generation = 2,
                                           .verdict = VERDICT_STALE,
                                           .digest = 77};
    ride();
    cr_assert(rig_record(&rig, &record));
    rig_tick(&rig, 0);
    cr_assert(reply_of(HEAD_PARAMETERS, &head) && head.version == 0);
}

Test(shard_pulls, one_that_rides_with_what_never_comes_is_gone_after_patience)
{
    ride();
    rig_tick(&rig, rig.options.pull_patience_ns);
    cr_assert(rig_reply(&rig, HEAD_GONE, 0));
}
