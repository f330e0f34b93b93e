#include "common/sealed.h"
#include "tests/unit/shard_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct rig rig;

static void begin(uint32_t ring)
{
    rig_init(&rig, RIG_ELEMENTS);
    rig.options.member.ring = ring;
    memset(rig.options.member.instance, 'a', NONCE_BYTES);
    rig_start(&rig, 0, 1);
    rig_join(&rig, 0, ROLE_WORKER);
}

/* A message under an epoch of its own, whatever the rig's. */
static void say(uint32_t epoch, const struct message *message)
{
    struct message copy = *message;
    copy.epoch = epoch;
    copy.timeline = 1;
    rig_event(&rig, (struct shard_event){.kind = SHARD_MESSAGE, .message = &copy});
}

/* Whether it promises; its answer names whom it follows. */
static bool seal(uint32_t epoch, char instance, uint32_t *follows, char *whom)
{
    struct message message = {.kind = MESSAGE_SEAL};
    memset(message.seal.instance, instance, NONCE_BYTES);
    say(epoch, &message);
    const struct message *sealed = rig_sent(&rig, MESSAGE_SEALED, 0);
    cr_assert_not_null(sealed);
    cr_assert_eq(sealed->sealed.index, rig.ledger.index);
    cr_assert_eq(sealed->sealed.hash, rig.ledger.hash);
    *follows = sealed->epoch;
    *whom = (char)sealed->sealed.instance[0];
    return rig_action(&rig, SHARD_CONTENT, 0) != NULL;
}

/* Coordinators of before take protocol 1 and no other: they deny it too. */
Test(shard_epoch, enlists_with_the_number_of_its_bits_its_promise_and_its_log)
{
    uint32_t follows;
    char whom;
    struct message_enlist enlist;
    shard_enlist(NULL, &enlist);
    cr_assert(enlist.protocol_oldest == PROTOCOL_SERVERS && enlist.cold == 1);
    cr_assert(enlist.protocol_newest == PROTOCOL_SERVERS && enlist.epoch == 0);
    cr_assert_gt(enlist.protocol_oldest, PROTOCOL_OLDEST);
    begin(8);
    cr_assert(seal(5, 'b', &follows, &whom));
    shard_enlist(rig.local->shard, &enlist);
    cr_assert(enlist.protocol_oldest == PROTOCOL_SERVERS && enlist.cold == 0);
    cr_assert(enlist.protocol_newest == PROTOCOL_SERVERS && enlist.epoch == 5);
    cr_assert_eq(enlist.index, rig.ledger.index);
    cr_assert_eq(enlist.hash, rig.ledger.hash);
    rig_end(&rig);
}

Test(shard_epoch, promises_upwards_only_and_one_instance_per_epoch)
{
    uint32_t follows;
    char whom;
    begin(8);
    cr_assert_eq(shard_promise(rig.local->shard), 1);
    cr_assert(!seal(1, 'b', &follows, &whom) && follows == 1 && whom == 'a');
    cr_assert(seal(5, 'b', &follows, &whom) && follows == 5 && whom == 'b');
    cr_assert(!seal(5, 'c', &follows, &whom) && follows == 5 && whom == 'b');
    cr_assert(!seal(4, 'b', &follows, &whom) && follows == 5);
    cr_assert(seal(5, 'b', &follows, &whom), "asked again: told again");
    cr_assert_eq(shard_promise(rig.local->shard), 5);
    rig_end(&rig);
}

Test(shard_epoch, follows_nobody_but_the_one_it_has_promised)
{
    uint32_t follows;
    char whom;
    begin(8);
    cr_assert(seal(2, 'b', &follows, &whom));
    struct message late = {.kind = MESSAGE_RECORD};
    late.record.kind = RECORD_SAVE;
    late.record.save.cut = 1;
    ledger_seal(&rig.ledger, &late.record);
    say(1, &late);
    cr_assert_null(rig_sent(&rig, MESSAGE_LOGGED, 0), "a zombie's record");
    say(3, &late);
    cr_assert_null(rig_sent(&rig, MESSAGE_LOGGED, 0), "nobody has won epoch 3 yet");
    say(2, &late); /* the record of epoch 1, sent again by the coordinator of epoch 2 */
    const struct message *logged = rig_sent(&rig, MESSAGE_LOGGED, 0);
    cr_assert(logged && logged->epoch == 2 && logged->logged.index == late.record.index);
    struct shard_figures figures;
    shard_figures(rig.local->shard, &figures);
    cr_assert_eq(figures.messages_dropped, 2);
    rig_end(&rig);
}

Test(shard_epoch, heads_of_the_epoch_before_are_refused)
{
    uint32_t follows;
    char whom;
    float body[RIG_ELEMENTS] = {1};
    begin(8);
    const uint32_t session = rig_hello(&rig, 0, 70);
    cr_assert(seal(2, 'b', &follows, &whom));
    const struct head_chunk chunk = rig_chunk_head(session, 1, body, RIG_CHUNK);
    rig_head(&rig, 70, &chunk, RIG_CHUNK);
    cr_assert(rig_action(&rig, SHARD_REFUSE, 0) && !rig_action(&rig, SHARD_TAKE, 0));
    struct head_hello hello = rig_hello_head(0);
    rig_head(&rig, 71, &hello, 0);
    cr_assert_null(rig_reply(&rig, HEAD_WELCOME, 0));
    hello.epoch = 2;
    rig_head(&rig, 71, &hello, 0);
    cr_assert_not_null(rig_reply(&rig, HEAD_WELCOME, 0));
    rig_end(&rig);
}

/* Model slots.pml, mutant CLOSE_OUTLIVES_SEAL: the STEP of epoch 1 that CLOSE waits for is lost,
 * and something else takes its index. */
Test(shard_epoch, a_close_that_waits_for_a_record_of_the_epoch_before_is_forgotten)
{
    uint32_t follows;
    char whom;
    begin(8);
    rig_close(&rig, 2, 1, rig.ledger.index + 1);
    cr_assert_null(rig_sent(&rig, MESSAGE_FREED, 0));
    cr_assert(seal(2, 'b', &follows, &whom));
    struct message other = {.kind = MESSAGE_RECORD};
    other.record.kind = RECORD_SAVE;
    other.record.save.cut = 1;
    ledger_seal(&rig.ledger, &other.record);
    say(2, &other);
    cr_assert_not_null(rig_sent(&rig, MESSAGE_LOGGED, 0));
    cr_assert_null(rig_sent(&rig, MESSAGE_FREED, 0));
    struct message close = {.kind = MESSAGE_CLOSE};
    close.close = (struct message_close){.slot = 2, .generation = 1, .after = other.record.index};
    say(2, &close);
    cr_assert_not_null(rig_sent(&rig, MESSAGE_FREED, 0), "closed by whom it follows");
    rig_end(&rig);
}

static struct ledger told;

/* The content: its newest and oldest record, how many, and how many LANDED. */
static void content(uint64_t *oldest, uint64_t *newest, uint32_t *landed)
{
    struct wire_decoder *decoder;
    struct sealed_reader reader;
    struct message message;
    const size_t room = shard_content_max(rig.local->shard);
    uint8_t *bytes = malloc(room);
    cr_assert(bytes);
    const size_t count = shard_content(rig.local->shard, bytes, room);
    cr_assert_eq(wire_decoder_new(&decoder), GRADWEIR_OK);
    cr_assert_eq(sealed_read(bytes, count, &reader), GRADWEIR_OK, "%s", fail_reason());
    cr_assert(reader.job == RIG_JOB && reader.shard == 0 && reader.members == 1);
    cr_assert_eq(ledger_read(reader.ledger, reader.ledger_bytes, &told), GRADWEIR_OK, "%s",
                 fail_reason());
    struct model *model;
    cr_assert_eq(model_decode(reader.layout, reader.layout_bytes, &model), GRADWEIR_OK);
    cr_assert_eq(model->hash, rig.model->hash);
    model_free(model);
    *oldest = *newest = *landed = 0;
    while (sealed_next(&reader, decoder, &message) == GRADWEIR_OK) {
        if (message.kind == MESSAGE_LANDED) {
            ++*landed;
            cr_assert(message.landed.slot == 1 && message.landed.digest == 77);
            continue;
        }
        cr_assert(*newest == 0 || message.record.index == *newest + 1);
        *newest = message.record.index;
        *oldest = *oldest ? *oldest : message.record.index;
    }
    cr_assert_eq(reader.messages_bytes, 0);
    wire_decoder_free(decoder);
    free(bytes);
}

Test(shard_epoch, tells_its_ledger_its_newest_records_its_layout_and_what_has_landed_whole)
{
    uint64_t oldest, newest;
    uint32_t landed;
    char body[RIG_ELEMENTS * sizeof(float) + RIG_MOMENTS * 24] = {0};
    begin(4);
    content(&oldest, &newest, &landed);
    cr_assert(oldest == 1 && newest == 2 && landed == 0, "MAP and JOIN");
    for (uint64_t cut = 1; cut <= 5; cut++) {
        struct record record = {.kind = RECORD_SAVE};
        record.save.cut = cut;
        cr_assert(rig_record(&rig, &record));
    }
    const uint32_t session = rig_hello(&rig, 0, 70);
    rig_push(&rig, 70, rig_chunk_head(session, 1, body, RIG_CHUNK), body);
    const struct head_chunk partly = rig_chunk_head(session, 2, body, RIG_CHUNK);
    rig_head(&rig, 70, &partly, RIG_CHUNK);
    content(&oldest, &newest, &landed);
    cr_assert(oldest == 4 && newest == 7 && landed == 1, "the ring keeps four");
    cr_assert_eq(memcmp(&told, &rig.ledger, sizeof told), 0);
    rig_close(&rig, 1, 1, rig.ledger.index);
    content(&oldest, &newest, &landed);
    cr_assert_eq(landed, 0, "a slot that closes is not told");
    rig_end(&rig);
}

Test(shard_epoch, without_a_log_it_follows_whoever_makes_it_a_member)
{
    begin(4);
    rig_end(&rig);
    rig_init(&rig, RIG_ELEMENTS);
    rig.options.member.members = 1;
    rig.options.member.count = RIG_ELEMENTS;
    cr_assert_eq(shard_local_open(rig.model, &rig.law, &rig.options, NULL, &rig.local),
                 GRADWEIR_OK);
    struct message member = {.kind = MESSAGE_MEMBER};
    say(7, &member);
    cr_assert_eq(shard_promise(rig.local->shard), 7);
    say(6, &member);
    cr_assert_eq(shard_promise(rig.local->shard), 7);
    rig_end(&rig);
}
