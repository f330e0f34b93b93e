/* The shard's step function: hands each event to the file that knows it. */
#include "server/shard/digests.h"
#include "server/shard/shard_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct shard_action *act(struct shard *shard, enum shard_action_kind kind)
{
    ASSERT(shard->out->count < shard->out->max);
    struct shard_action *action = &shard->out->items[shard->out->count++];
    memset(action, 0, offsetof(struct shard_action, message));
    action->kind = kind;
    return action;
}

struct message *tell(struct shard *shard, enum message_kind kind)
{
    struct message *message = &act(shard, SHARD_SEND)->message;
    message->kind = kind;
    message->epoch = shard->promise.epoch;
    message->timeline = shard->ledger.timeline;
    return message;
}

void say(struct shard *shard, const char *format, ...)
{
    char *text = act(shard, SHARD_SAY)->message.denied.text;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, TEXT_MAX, format, arguments);
    va_end(arguments);
}

static void say_logged(struct shard *shard)
{
    tell(shard, MESSAGE_LOGGED)->logged =
        (struct message_logged){.index = shard->ledger.index, .hash = shard->ledger.hash};
}

static void record_came(struct shard *shard, const struct record *record)
{
    if (record->index <= shard->ledger.index) { /* said twice: so is the answer */
        say_logged(shard);
        return;
    }
    struct ledger_range ranges[LEDGER_CHANGES_MAX];
    const uint32_t ranges_count = ledger_changes(&shard->ledger, record, ranges);
    for (uint32_t i = 0; i < ranges_count; i++)
        journal_keep(shard, (char *)&shard->ledger + ranges[i].offset, ranges[i].bytes);
    const gradweir_status status =
        !apply_room(shard, record) ? fail(GRADWEIR_ERR_FULL, "too many wait to be applied")
        : !stacks_room(shard, record)
            ? fail(GRADWEIR_ERR_MISMATCH,
                   "the coordinator's window has partial sums that this shard took no memory for: "
                   "window, stride, decay and window_algorithm must be the same")
            : ledger_apply(&shard->ledger, record);
    if (status != GRADWEIR_OK) {
        say(shard, "shard %u refuses a record: %.400s", shard->options.member.shard, fail_reason());
        return;
    }
    struct law_entry entry;
    while (ledger_retired(&shard->ledger, &entry))
        ; /* the coordinator says which slots are free by CLOSE */
    epoch_logged(shard, record);
    apply_logged(shard, record);
    say_logged(shard);
    apply_advance(shard);
}

static void whole_came(struct shard *shard, uint64_t version)
{
    if (version > shard->whole && version <= shard->version) {
        KEEP(shard, shard->whole);
        shard->whole = version;
        pulls_retry(shard);
        apply_advance(shard); /* the slot of the last whole version may be free now */
    }
}

/* One that comes late, after that of a later incarnation, changes nothing. But what a coordinator
 * of before has let in may never have got into the log, and the next one gives the number again. */
static void entry_came(struct shard *shard, const struct message_entry *given)
{
    if (given->worker >= WORKERS_MAX)
        return;
    struct entry *entry = &shard->entries[given->worker];
    const uint32_t epoch = shard->promise.epoch;
    if (given->incarnation < entry->incarnation && entry->epoch == epoch)
        return;
    KEEP(shard, *entry);
    *entry = (struct entry){.known = true, .epoch = epoch, .incarnation = given->incarnation};
    memcpy(entry->pass, given->pass, sizeof entry->pass);
}

static void message_came(struct shard *shard, const struct message *message)
{
    if (message->kind == MESSAGE_SEAL) {
        epoch_seal(shard, message->epoch, &message->seal);
        return;
    }
    if (!epoch_follows(shard, message))
        return;
    switch (message->kind) {
    case MESSAGE_RECORD: record_came(shard, &message->record); break;
    case MESSAGE_MEMBER: /* a new connection: what the old one may have lost is said again */
        say_logged(shard);
        slots_say_again(shard);
        apply_say_again(shard);
        break;
    case MESSAGE_WHOLE: whole_came(shard, message->whole.version); break;
    case MESSAGE_CLOSE: slot_close(shard, &message->close); break;
    case MESSAGE_ENTRY: entry_came(shard, &message->entry); break;
    case MESSAGE_RECEIPT: receipt_came(shard, &message->receipt); break;
    default: break;
    }
}

static void offer_came(struct shard *shard, const struct shard_event *event)
{
    switch (event->head->kind) {
    case HEAD_CHUNK:
    case HEAD_PART: slot_chunk(shard, event); return;
    case HEAD_HELLO:
        if (event->length == 0) {
            session_hello(shard, event);
            return;
        }
        break;
    case HEAD_DESCRIBE:
        if (event->length == 0) {
            describe_came(shard, event);
            return;
        }
        break;
    case HEAD_PULL: pull_asked(shard, event); return;
    default: break;
    }
    shard->figures.heads_dropped++;
    if (event->length)
        act(shard, SHARD_REFUSE)->offer = event->offer;
}

static void pulse(struct shard *shard)
{
    if (shard->now_ns < shard->pulse_due_ns)
        return;
    shard->pulse_due_ns = shard->now_ns + PULSE_NS;
    const enum step_phase phase = shard->step.phase;
    KEEP(shard, shard->beat);
    tell(shard, MESSAGE_PULSE)->pulse =
        (struct message_pulse){.beat = ++shard->beat,
                               .logged = shard->ledger.index,
                               .applied = shard->applied,
                               .version = shard->version,
                               .bytes_in = shard->figures.bytes_in,
                               .bytes_out = shard->figures.bytes_out,
                               .sessions = shard->figures.sessions,
                               .waiting = phase == STEP_WAIT_SLOT     ? 1
                                          : phase == STEP_WAIT_SUMMED ? 2
                                                                      : 0,
                               .step_ns = shard->step_ns,
                               .dropped = shard->figures.heads_dropped};
}

static void body_came(struct shard *shard, const struct shard_event *event)
{
    if (token_kind(event->token) == TOKEN_SHARE)
        share_landed(shard, event);
    else if (token_kind(event->token) == TOKEN_LIST)
        pull_listed(shard, event);
    else
        slot_landed(shard, event);
}

static void done_came(struct shard *shard, const struct shard_event *event)
{
    if (token_kind(event->token) == TOKEN_SCAN)
        slot_scanned(shard, event);
    else
        apply_done(shard, event);
}

void shard_step(struct shard *shard, const struct shard_event *event, struct shard_actions *actions)
{
    actions->count = 0;
    shard->out = actions;
    shard->now_ns = event->now_ns;
    if (shard->revived)
        shard_revive(shard);
    else
        shard->keeps_count = 0; /* carried out */
    switch (event->kind) {
    case SHARD_MESSAGE: message_came(shard, event->message); break;
    case SHARD_OFFERED: offer_came(shard, event); break;
    case SHARD_LANDED: body_came(shard, event); break;
    case SHARD_SENT: pull_sent(shard, event); break;
    case SHARD_PEER_LOST: session_peer_lost(shard, event->peer); break;
    case SHARD_DONE: done_came(shard, event); break;
    case SHARD_TICK:
        pulse(shard);
        slots_free_due(shard);
        pulls_retry(shard);
        apply_advance(shard);
        break;
    }
    journal_commit(shard);
    shard->out = NULL;
}

int64_t shard_next(const struct shard *shard)
{
    const int64_t pulls = pulls_next(shard), slots = slots_next(shard);
    const int64_t first = pulls < slots ? pulls : slots;
    return first < shard->pulse_due_ns ? first : shard->pulse_due_ns;
}

uint32_t shard_actions_max(const struct shard *shard)
{
    const struct shard_options *options = &shard->options;
    return 8 * options->member.slots + (REPLIES_AHEAD + 2) * options->pulls_max +
           2 * options->sessions_max + 64 + (uint32_t)(2 * shard->sum_pieces / SUM_NODES_MAX);
}

const struct arithmetic_plan *shard_plan(struct shard *shard)
{
    return &shard->step.plan;
}

/* What has that many elements has left the caches before anybody reads it again. */
#define STREAM_ELEMENTS ((uint64_t)2 << 20)

bool shard_streams(const struct shard *shard)
{
    return shard->elements >= STREAM_ELEMENTS;
}

void shard_work(struct shard *shard, struct arithmetic_work *work)
{
    const struct stepping *step = &shard->step;
    const uint64_t tile = tile_next(shard) < shard->elements ? tile_next(shard) : 0;
    *work = (struct arithmetic_work){
        .sources = {.base = at_offset(shard, shard->at.slots),
                    .stride_bytes = shard->slot_stride,
                    .codec = shard->codec,
                    .back = at_offset(shard, shard->at.back),
                    .fronts = at_offset(shard, shard->at.fronts),
                    .front_stride = shard->state_stride / sizeof(float),
                    .first = shard->options.member.first,
                    .stripe = shard->stripe},
        .average = shard->average && step->record.rounds && step->phase == STEP_APPLYING
                       ? shard_average(shard)
                       : NULL,
        .ratios = shard->ratios_count ? at_offset(shard, shard->at.ratios) : NULL,
        .parameters = at_offset(shard, parameter_offset(shard, step->from)),
        .parameters_next = at_offset(shard, parameter_offset(shard, step->to)),
        .ranges = at_offset(shard, shard->at.pieces),
        .ranges_n = shard->pieces_count,
        .streams = shard_streams(shard) && !digests_kept_up(shard)}; /* they are taken at once */
    for (uint32_t i = 0; i < shard->states_count; i++) {
        work->state[i] = at_offset(shard, tile_state(shard, i, tile, false));
        work->state_next[i] = at_offset(shard, tile_state(shard, i, tile, true));
    }
}

void shard_floats(const struct shard *shard, struct shard_floats *floats)
{
    *floats = (struct shard_floats){.slots = shard->at.slots,
                                    .slot_stride = shard->slot_stride,
                                    .parameters = shard->at.parameters,
                                    .parameter_bytes = shard->elements * sizeof(float),
                                    .partials = shard->at.back,
                                    .end = shard->bytes};
}

float *shard_average(struct shard *shard)
{
    return at_offset(shard, shard->at.average);
}

void *shard_slot(struct shard *shard, uint32_t slot, uint64_t *bytes)
{
    ASSERT(slot < shard->options.member.slots);
    *bytes = shard->gradient_bytes;
    return at_offset(shard, slot_offset(shard, slot));
}

void *shard_first(struct shard *shard, uint32_t slot, uint64_t *bytes)
{
    ASSERT(slot < shard->options.member.slots);
    *bytes = shard->body_bytes;
    return at_offset(shard, first_offset(shard, slot));
}

bool shard_is_parameters(const struct shard *shard, uint64_t offset)
{
    return offset >= shard->at.parameters &&
           offset < parameter_offset(shard, shard->options.member.parameter_slots);
}

const struct ledger *shard_ledger(const struct shard *shard)
{
    return &shard->ledger;
}

void shard_figures(const struct shard *shard, struct shard_figures *figures)
{
    *figures = shard->figures;
    figures->logged = shard->ledger.index;
    figures->applied = shard->applied;
    figures->version = shard->version;
    figures->whole = shard->whole;
    for (uint32_t i = 0; i < shard->options.member.slots; i++)
        figures->landing += shard->slots[i].generation != 0;
    for (uint32_t i = 0; i < shard->options.member.parameter_slots; i++)
        figures->pinned += shard->parameters[i].pins > 0;
}

const float *shard_parameters(struct shard *shard, uint64_t *version)
{
    const uint32_t index = parameters_find(shard, shard->version);
    *version = shard->version;
    return index == UINT32_MAX ? NULL : at_offset(shard, parameter_offset(shard, index));
}

bool shard_plant(struct shard *shard, const char *name)
{
    const struct {
        const char *name;
        bool *flag;
    } plants[] = {{"stale-record", &shard->plant.stale_record},
                  {"no-fence", &shard->plant.no_fence},
                  {"pin-ignored", &shard->plant.pin_ignored},
                  {"checksum-ignored", &shard->plant.checksum_ignored},
                  {"whole-early", &shard->plant.whole_early},
                  {"torn-step", &shard->plant.torn_step},
                  {"order-swapped", &shard->plant.order_swapped},
                  {"redo-off", &shard->plant.redo_off},
                  {"stacks-redo-off", &shard->plant.stacks_redo_off},
                  {"stacks-schedule-shifted", &shard->plant.stacks_shifted},
                  {"undo-off", &shard->plant.undo_off},
                  {"stale-close", &shard->plant.stale_close},
                  {"quiet-off", &shard->plant.quiet_off},
                  {"promise-forgotten", &shard->plant.promise_forgotten},
                  {"generation-ignored", &shard->plant.generation_ignored},
                  {"ahead-kept", &shard->plant.ahead_kept},
                  {"moments-twice", &shard->plant.moments_twice}};
    for (size_t i = 0; i < sizeof plants / sizeof *plants; i++)
        if (strcmp(plants[i].name, name) == 0)
            return *plants[i].flag = true;
    return false;
}
