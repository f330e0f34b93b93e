#include "server/coordinator/order.h"

#include "common/settings.h"
#include "tests/unit/order_bench.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct bench b;

static const struct message_tuned *tune(const char *setting, const char *value)
{
    struct message ask = {.kind = MESSAGE_TUNE_ASK};
    snprintf(ask.tune_ask.setting, sizeof ask.tune_ask.setting, "%s", setting);
    snprintf(ask.tune_ask.value, sizeof ask.tune_ask.value, "%s", value);
    bench_say(&b, 300, &ask);
    const struct message *answer = bench_sent(&b, 300, MESSAGE_TUNED, 0);
    cr_assert_not_null(answer);
    return &answer->tuned;
}

Test(order_tune, every_live_setting_of_the_table_can_be_tuned_and_no_other)
{
    uint32_t live = 0;
    bench_init(&b);
    bench_start(&b, true);
    for (size_t i = 0; i < settings_server_count; i++) {
        const struct setting *row = &settings_server[i];
        const struct message_tuned *tuned = tune(row->name, row->by_default);
        cr_assert_eq(tuned->status == GRADWEIR_OK, row->live, "%s: %s", row->name, tuned->text);
        live += row->live;
    }
    cr_assert_gt(live, 15);
    bench_end(&b);
}

Test(order_tune, what_cannot_be_is_said_with_range_and_nearest_name)
{
    static const char *const wrong[][3] = {
        {"windov", "2", "nearest is window"}, {"stride", "0", "1 to 256"},
        {"shards", "2", "cannot be changed"}, {"decay", "expp", "uniform|exp|poly"},
        {"lease", "7000s", "lease"},          {"window", "9", "window_max"}};
    bench_init(&b);
    bench_start(&b, true);
    const uint64_t index = order_ledger(b.order)->index;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct message_tuned *tuned = tune(wrong[i][0], wrong[i][1]);
        cr_assert_eq(tuned->status, GRADWEIR_ERR_INVALID, "%s", wrong[i][0]);
        cr_assert(strstr(tuned->text, wrong[i][2]), "%s: %s", wrong[i][0], tuned->text);
    }
    cr_assert_eq(order_ledger(b.order)->index, index);
    bench_end(&b);
}

Test(order_tune, patience_changes_at_once_and_leaves_no_record)
{
    struct message_place place;
    bench_init(&b);
    bench_start(&b, true);
    const uint64_t index = order_ledger(b.order)->index;
    cr_assert(bench_place(&b, 0, 2, &place));
    const struct message_describe head = bench_head(&b, &place);
    bench_describe(&b, &head);
    const struct message_tuned *tuned = tune("push-patience", "20ms");
    cr_assert(tuned->status == GRADWEIR_OK && tuned->index == 0);
    cr_assert_eq(order_ledger(b.order)->index, index);
    bench_tick(&b, 19000000);
    cr_assert_eq(bench_records(&b, RECORD_REFUSE), 0);
    bench_tick(&b, 2000000);
    cr_assert_eq(bench_records(&b, RECORD_REFUSE), 1, "it is CANCELLED by the new patience");
    bench_end(&b);
}

Test(order_tune, the_law_changes_at_a_record_that_the_answer_names)
{
    bench_init(&b);
    bench_start(&b, true);
    const struct message_tuned *tuned = tune("learning-rate", "0.125");
    cr_assert(tuned->status == GRADWEIR_OK && tuned->index == order_ledger(b.order)->index);
    cr_assert_eq(order_ledger(b.order)->law.settings.learning_rate, 0.125);
    cr_assert_eq(bench_records(&b, RECORD_TUNE), 1);
    bench_end(&b);
}
