/* Settings that change while the job runs. Those of the law decide numbers, so they change at one
 * place of the order: a TUNE record. Patience is the coordinator's own affair: it changes at once,
 * leaves no record, and the next coordinator starts with what its own settings say. */
#include "common/settings_value.h"
#include "server/coordinator/order_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int64_t *patience(struct order_options *options, const char *name)
{
    const struct {
        const char *name;
        int64_t *ns;
    } rows[] = {{"flush_after", &options->flush_after_ns},
                {"place_patience", &options->place_patience_ns},
                {"push_patience", &options->push_patience_ns},
                {"round_patience", &options->round_patience_ns},
                {"lease", &options->lease_ns}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].ns;
    return NULL;
}

static gradweir_status tune_law(struct order *order, const char *name, const char *value)
{
    struct law_settings settings = order->ledger.settings;
    if (!order->ledger.mapped || !order_room(order))
        return fail(GRADWEIR_ERR_AGAIN, "the job has not begun, or a shard is far behind");
    TRY(ledger_settings_tune(&settings, name, value));
    if (settings.window > order->options.window_max)
        return fail(GRADWEIR_ERR_INVALID, "window is at most window_max, which is %u",
                    order->options.window_max);
    if (order->options.sync && (settings.window != order->ledger.settings.window ||
                                settings.stride != order->ledger.settings.stride))
        return fail(GRADWEIR_ERR_INVALID,
                    "in mode = sync window and stride are the number of workers");
    struct record record = {.kind = RECORD_TUNE};
    snprintf(record.tune.setting, sizeof record.tune.setting, "%s", name);
    snprintf(record.tune.value, sizeof record.tune.value, "%s", value);
    order_append(order, &record);
    order_say(order, "tuned: %s = %s from record %" PRIu64 " on", name, value, order->ledger.index);
    return GRADWEIR_OK;
}

static gradweir_status tune(struct order *order, const struct message_tune_ask *ask)
{
    struct setting_value value;
    if (!memchr(ask->setting, 0, sizeof ask->setting) || !memchr(ask->value, 0, sizeof ask->value))
        return fail(GRADWEIR_ERR_PROTOCOL, "that is no text");
    const struct setting *row = settings_find(settings_server, settings_server_count, ask->setting);
    if (!row)
        return fail(GRADWEIR_ERR_INVALID, "there is no setting \"%s\"; the nearest is %s",
                    ask->setting,
                    settings_nearest_live(settings_server, settings_server_count, ask->setting));
    if (!row->live)
        return fail(GRADWEIR_ERR_INVALID, "%s cannot be changed while the job runs", row->name);
    TRY(setting_value_read(row, ask->value, &value));
    int64_t *wait_ns = patience(&order->options, row->name);
    if (!wait_ns)
        return tune_law(order, row->name, ask->value);
    *wait_ns = value.whole == SETTING_WORD ? 0 : value.whole;
    order->patience_ns = order->expire_ns = 0; /* looked at anew */
    if (wait_ns == &order->options.lease_ns)
        order->options.shard_patience_ns = value.whole;
    order_say(order, "tuned: %s = %s", row->name, ask->value);
    return GRADWEIR_OK;
}

void tune_came(struct order *order, uint32_t peer, const struct message_tune_ask *ask)
{
    const uint64_t before = order->ledger.index;
    const gradweir_status status = tune(order, ask);
    struct message *answer = order_send(order, peer, MESSAGE_TUNED);
    answer->tuned.status = status;
    answer->tuned.index = order->ledger.index > before ? order->ledger.index : 0;
    if (status != GRADWEIR_OK)
        snprintf(answer->tuned.text, sizeof answer->tuned.text, "%s", fail_reason());
}
