#include "tests/unit/shard_rig.h"

#include <criterion/criterion.h>
#include <string.h>

static struct rig rig;
static float body[RIG_ELEMENTS + 12];

static void start(void)
{
    rig_init(&rig, RIG_ELEMENTS);
    rig_start(&rig, 0, 1);
}

static void end(void)
{
    rig_end(&rig);
}

TestSuite(shard_sessions, .init = start, .fini = end);

static gradweir_status denied(const struct head_hello *hello)
{
    struct head_welcome head;
    rig_head(&rig, 50, hello, 0);
    const struct shard_action *reply = rig_reply(&rig, HEAD_DENY, 0);
    cr_assert_not_null(reply);
    cr_assert_null(rig_reply(&rig, HEAD_WELCOME, 0));
    memcpy(&head, &reply->head, sizeof head);
    return (gradweir_status)head.status;
}

Test(shard_sessions, a_hello_before_its_pass_is_told_to_come_again)
{
    const struct head_hello hello = rig_hello_head(0);
    cr_assert_eq(denied(&hello), GRADWEIR_ERR_AGAIN);
    rig_join(&rig, 0, ROLE_WORKER);
    cr_assert_neq(rig_hello(&rig, 0, 50), 0);
}

Test(shard_sessions, a_hello_that_is_wrong_in_one_field_is_denied)
{
    rig_join(&rig, 0, ROLE_WORKER);
    struct head_hello hello = rig_hello_head(0);
    hello.pass[15] ^= 1;
    cr_assert_eq(denied(&hello), GRADWEIR_ERR_REFUSED);
    hello = rig_hello_head(0);
    hello.job++;
    cr_assert_eq(denied(&hello), GRADWEIR_ERR_MISMATCH);
    hello = rig_hello_head(0);
    hello.level++;
    cr_assert_eq(denied(&hello), GRADWEIR_ERR_MISMATCH);
    hello = rig_hello_head(0);
    hello.incarnation = 0;
    cr_assert_eq(denied(&hello), GRADWEIR_ERR_FENCED);
    hello = rig_hello_head(0);
    hello.incarnation = 2;
    cr_assert_eq(denied(&hello), GRADWEIR_ERR_AGAIN);
    hello = rig_hello_head(0);
    hello.epoch = 0;
    cr_assert_eq(denied(&hello), GRADWEIR_ERR_MISMATCH);
    hello = rig_hello_head(0);
    hello.timeline = 2;
    cr_assert_eq(denied(&hello), GRADWEIR_ERR_AGAIN);
    hello = rig_hello_head(WORKERS_MAX);
    cr_assert_eq(denied(&hello), GRADWEIR_ERR_INVALID);
}

Test(shard_sessions, a_new_hello_hangs_up_the_old_connection_first)
{
    rig_join(&rig, 0, ROLE_WORKER);
    const uint32_t old = rig_hello(&rig, 0, 50), new = rig_hello(&rig, 0, 51);
    cr_assert(old && new &&old != new);
    cr_assert_eq(rig_action(&rig, SHARD_HANGUP, 0)->peer, 50);
    const struct head_chunk head = rig_chunk_head(old, 0, body, RIG_CHUNK);
    rig_head(&rig, 50, &head, RIG_CHUNK);
    cr_assert_null(rig_action(&rig, SHARD_TAKE, 0));
    rig_head(&rig, 51, &head, RIG_CHUNK); /* the old number on the new connection */
    cr_assert_null(rig_action(&rig, SHARD_TAKE, 0));
}

Test(shard_sessions, a_reconnect_waits_until_bodies_of_the_old_connection_rest)
{
    rig_join(&rig, 0, ROLE_WORKER);
    struct head_chunk head = rig_chunk_head(rig_hello(&rig, 0, 50), 0, body, RIG_CHUNK);
    rig_head(&rig, 50, &head, RIG_CHUNK);
    const struct shard_action take = *rig_action(&rig, SHARD_TAKE, 0);

    cr_assert_eq(rig_hello(&rig, 0, 51), 0);
    cr_assert_eq(rig_action(&rig, SHARD_HANGUP, 0)->peer, 50);
    rig_event(&rig, (struct shard_event){
                        .kind = SHARD_LANDED, .token = take.token, .status = GRADWEIR_ERR_LOST});

    head.session = rig_hello(&rig, 0, 51);
    cr_assert_neq(head.session, 0);
    rig_push(&rig, 51, head, body); /* asserts that each chunk, the first too, is taken */
    cr_assert(rig_sent(&rig, MESSAGE_LANDED, 0)->landed.intact);
}

Test(shard_sessions, who_leaves_is_hung_up_and_its_pass_is_over)
{
    rig_join(&rig, 0, ROLE_WORKER);
    cr_assert_neq(rig_hello(&rig, 0, 50), 0);
    struct record record = {.kind = RECORD_LEAVE, .leave = {0, 1, LEAVE_LEASE}};
    cr_assert(rig_record(&rig, &record));
    cr_assert_eq(rig_action(&rig, SHARD_HANGUP, 0)->peer, 50);
    cr_assert_eq(rig_hello(&rig, 0, 51), 0);
}

Test(shard_sessions, there_are_no_more_sessions_than_places)
{
    for (uint32_t i = 0; i < 5; i++)
        rig_join(&rig, i, ROLE_READER);
    for (uint32_t i = 0; i < 4; i++)
        cr_assert_neq(rig_hello(&rig, i, 60 + i), 0);
    const struct head_hello hello = rig_hello_head(4);
    cr_assert_eq(denied(&hello), GRADWEIR_ERR_FULL);
    rig_event(&rig, (struct shard_event){.kind = SHARD_PEER_LOST, .peer = 62});
    cr_assert_neq(rig_hello(&rig, 4, 64), 0);
}

Test(shard_sessions, words_go_to_the_coordinator_under_the_name_of_their_session)
{
    rig_join(&rig, 0, ROLE_WORKER);
    struct head_describe head = {.kind = HEAD_DESCRIBE,
                                 .session = rig_hello(&rig, 0, 50),
                                 .epoch = 1,
                                 .slot = 3,
                                 .generation = 8,
                                 .sequence = 2,
                                 .basis = 5,
                                 .digest = 77,
                                 .samples = 9,
                                 .norm = 1.5};
    rig_head(&rig, 50, &head, 0);
    const struct message *said = rig_sent(&rig, MESSAGE_DESCRIBE, 0);
    cr_assert_not_null(said);
    const struct message_describe *describe = &said->describe;
    cr_assert(describe->name.worker == 0 && describe->name.incarnation == 1);
    cr_assert(describe->name.sequence == 2 && describe->slot == 3 && describe->generation == 8);
    cr_assert(describe->basis == 5 && describe->digest == 77 && describe->samples == 9);
    cr_assert_eq(describe->layout_hash, rig.model->hash);
    rig_head(&rig, 51, &head, 0); /* not its connection */
    cr_assert_null(rig_sent(&rig, MESSAGE_DESCRIBE, 0));
    head.epoch = 2;
    rig_head(&rig, 50, &head, 0);
    cr_assert_null(rig_sent(&rig, MESSAGE_DESCRIBE, 0));
    head.epoch = 1;
    head.slot = SLOTS_MAX;
    rig_head(&rig, 50, &head, 0);
    cr_assert_null(rig_sent(&rig, MESSAGE_DESCRIBE, 0));
}

Test(shard_sessions, a_receipt_goes_to_the_session_of_its_name_or_nowhere)
{
    rig_join(&rig, 0, ROLE_WORKER);
    const uint32_t number = rig_hello(&rig, 0, 50);
    struct message message = {.kind = MESSAGE_RECEIPT};
    message.receipt = (struct message_receipt){.name = {.incarnation = 1, .sequence = 4},
                                               .verdict = VERDICT_ADMITTED,
                                               .index = 12,
                                               .next_sequence = 5,
                                               .next_slot = 2,
                                               .next_generation = 30};
    rig_say(&rig, &message);
    const struct shard_action *reply = rig_reply(&rig, HEAD_RECEIPT, 0);
    cr_assert_not_null(reply);
    struct head_receipt head;
    memcpy(&head, &reply->head, sizeof head);
    cr_assert(reply->peer == 50 && head.session == number && head.sequence == 4);
    cr_assert(head.index == 12 && head.next == 1 && head.next_slot == 2);
    cr_assert_eq(head.next_generation, 30);
    message.receipt.name.incarnation = 2;
    rig_say(&rig, &message);
    cr_assert_null(rig_reply(&rig, HEAD_RECEIPT, 0));
}
