#include "tests/unit/shard_rig.h"

#include "common/checksum.h"
#include "tests/unit/shard_audit.h"

#include <criterion/criterion.h>
#include <string.h>

static const int64_t SECOND = 1000000000;

void rig_init(struct rig *rig, uint64_t elements)
{
    memset(rig, 0, sizeof *rig);
    const struct model_tensor tensors[2] = {
        {.name = "w", .dimensions = 1, .shape = {elements}},
        {.name = "returns", .kind = MODEL_MOMENTS, .dimensions = 1, .shape = {RIG_MOMENTS}}};
    cr_assert_eq(model_new(2, &rig->model), GRADWEIR_OK);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(model_add(rig->model, &tensors[i]), GRADWEIR_OK);
    cr_assert_eq(model_seal(rig->model), GRADWEIR_OK);
    rig->law = law_classic();
    rig->law.algorithm = ARITHMETIC_SGD;
    rig->law.learning_rate = 1;
    rig->now_ns = SECOND;
    rig->options = (struct shard_options){.member = {.job = RIG_JOB,
                                                     .slots = RIG_SLOTS,
                                                     .parameter_slots = 3,
                                                     .layout_hash = rig->model->hash},
                                          .optimizer = {.epsilon = 1e-8},
                                          .sessions_max = 4,
                                          .pulls_max = 4,
                                          .chunk_bytes = RIG_CHUNK,
                                          .pull_patience_ns = SECOND,
                                          .warm = true,
                                          .digest = true};
}

void rig_start(struct rig *rig, uint32_t shard, uint32_t members)
{
    const struct model_range range = model_shard(rig->model, members, shard);
    rig->options.member.shard = shard;
    rig->options.member.members = members;
    rig->options.member.first = range.first;
    rig->options.member.count = range.elements;
    rig->options.member.moments = range.moments > 0;
    cr_assert_eq(shard_local_open(rig->model, &rig->law, &rig->options, NULL, &rig->local),
                 GRADWEIR_OK, "%s", fail_reason());
    shard_audit_begin(rig->local->shard);
    ledger_init(&rig->ledger);
    struct record record = {.kind = RECORD_MAP};
    record.map.members = members;
    record.map.layout_hash = rig->model->hash;
    record.map.slots = RIG_SLOTS;
    record.map.groups_count = 1;
    for (uint32_t i = 0; i < members; i++) {
        record.map.firsts[i] = model_shard(rig->model, members, i).first;
        record.map.counts[i] = model_shard(rig->model, members, i).elements;
    }
    cr_assert_eq(ledger_settings_write(&rig->law, &rig->options.optimizer, record.map.settings,
                                       sizeof record.map.settings),
                 GRADWEIR_OK);
    cr_assert(rig_record(rig, &record));
    rig->map = record;
}

void rig_end(struct rig *rig)
{
    shard_audit_end(rig->local->shard);
    shard_local_close(rig->local);
    model_free(rig->model);
}

void rig_event(struct rig *rig, struct shard_event event)
{
    event.now_ns = rig->now_ns;
    if (!rig->by_hand) {
        shard_local_event(rig->local, &event);
        return;
    }
    struct shard_local *local = rig->local;
    shard_step(local->shard, &event, &local->actions);
    local->outbox_count = local->actions.count;
    memcpy(local->outbox, local->actions.items, local->actions.count * sizeof *local->outbox);
}

void rig_say(struct rig *rig, const struct message *message)
{
    struct message copy = *message;
    copy.epoch = rig->ledger.epoch;
    copy.timeline = rig->ledger.timeline;
    rig_event(rig, (struct shard_event){.kind = SHARD_MESSAGE, .message = &copy});
}

void rig_tick(struct rig *rig, int64_t after_ns)
{
    rig->now_ns += after_ns;
    rig_event(rig, (struct shard_event){.kind = SHARD_TICK});
}

void rig_head(struct rig *rig, uint64_t peer, const void *head, uint64_t length)
{
    struct head_any any;
    memcpy(&any, head, sizeof any);
    rig_event(rig,
              (struct shard_event){
                  .kind = SHARD_OFFERED, .peer = peer, .head = &any, .offer = 5, .length = length});
}

void rig_done(struct rig *rig, uint64_t token)
{
    rig_event(rig,
              (struct shard_event){.kind = SHARD_DONE, .token = token, .not_finite = UINT64_MAX});
}

void rig_close(struct rig *rig, uint32_t slot, uint64_t generation, uint64_t after)
{
    rig_say(rig, &(struct message){.kind = MESSAGE_CLOSE, .close = {slot, generation, after}});
}

bool rig_record(struct rig *rig, struct record *record)
{
    ledger_seal(&rig->ledger, record);
    cr_assert_eq(ledger_apply(&rig->ledger, record), GRADWEIR_OK, "%s", fail_reason());
    struct law_entry entry;
    while (ledger_retired(&rig->ledger, &entry))
        ;
    rig_say(rig, &(struct message){.kind = MESSAGE_RECORD, .record = *record});
    const struct message *logged = rig_sent(rig, MESSAGE_LOGGED, 0);
    return logged && logged->logged.index == record->index &&
           logged->logged.hash == rig->ledger.hash;
}

void rig_join(struct rig *rig, uint32_t worker, uint32_t role)
{
    struct record record = {.kind = RECORD_JOIN};
    record.join = (struct record_join){
        .worker = worker, .incarnation = 1, .role = role, .outstanding_max = 4};
    record.join.identity[0] = (char)('a' + worker);
    cr_assert(rig_record(rig, &record));
    struct message entry = {.kind = MESSAGE_ENTRY, .entry = {.worker = worker, .incarnation = 1}};
    memset(entry.entry.pass, (int)worker + 1, sizeof entry.entry.pass);
    rig_say(rig, &entry);
}

static struct name next_name(const struct rig *rig, uint32_t worker)
{
    return (struct name){worker, 1, rig->ledger.workers[worker].last_sequence + 1};
}

bool rig_first(struct rig *rig, uint32_t worker, uint32_t slot)
{
    struct record record = {.kind = RECORD_FIRST};
    record.first = (struct record_first){
        .name = next_name(rig, worker), .slot = slot, .generation = 1, .digest = 77};
    return rig_record(rig, &record);
}

bool rig_admit(struct rig *rig, uint32_t worker, uint32_t slot)
{
    struct record record = {.kind = RECORD_ADMIT};
    record.admit = (struct record_admit){.name = next_name(rig, worker),
                                         .slot = slot,
                                         .generation = 1,
                                         .digest = 77,
                                         .basis = rig->ledger.law.version,
                                         .samples = 1,
                                         .sample_weight = 1,
                                         .clip = 1};
    return rig_record(rig, &record);
}

bool rig_step(struct rig *rig, uint32_t rounds, const uint32_t *slots, const float *weights,
              uint32_t n)
{
    struct record record = {.kind = RECORD_STEP};
    struct record_step *step = &record.step;
    step->version = rig->ledger.law.version + 1;
    step->t = rig->ledger.law.optimizer_step + 1;
    step->cause = STEP_DUE;
    step->rounds = rounds;
    step->groups_count = 1;
    step->groups[0] =
        (struct step_group){.learning_rate = rig->law.learning_rate,
                            .bias_correction1 = arithmetic_bias(rig->law.beta1, step->t),
                            .bias_correction2 = arithmetic_bias(rig->law.beta2, step->t)};
    step->entries_count = n;
    for (uint32_t i = 0; i < n; i++) {
        step->entries[i].slot = slots[i];
        memcpy(&step->entries[i].weight, &weights[i], sizeof weights[i]);
    }
    return rig_record(rig, &record);
}

bool rig_step_one(struct rig *rig, uint32_t slot)
{
    const float one = 1;
    return rig_step(rig, 0, &slot, &one, 1);
}

bool rig_summed(struct rig *rig, float factor)
{
    struct record record = {.kind = RECORD_SUMMED};
    record.summed.version = rig->ledger.law.version;
    record.summed.round = 1;
    memcpy(&record.summed.factor, &factor, sizeof factor);
    return rig_record(rig, &record);
}

struct head_hello rig_hello_head(uint32_t worker)
{
    struct head_hello head = {.kind = HEAD_HELLO,
                              .level = PROTOCOL_VERSION,
                              .worker = worker,
                              .epoch = 1,
                              .timeline = 1,
                              .job = RIG_JOB,
                              .incarnation = 1};
    memset(head.pass, (int)worker + 1, sizeof head.pass);
    return head;
}

uint32_t rig_hello(struct rig *rig, uint32_t worker, uint64_t peer)
{
    const struct head_hello head = rig_hello_head(worker);
    rig_head(rig, peer, &head, 0);
    const struct shard_action *welcome = rig_reply(rig, HEAD_WELCOME, 0);
    return welcome && welcome->peer == peer ? welcome->head.session : 0;
}

struct head_chunk rig_chunk_head(uint32_t session, uint32_t slot, const void *body, uint64_t length)
{
    return (struct head_chunk){.kind = HEAD_CHUNK,
                               .flags = CHUNK_SEALED,
                               .session = session,
                               .epoch = 1,
                               .slot = slot,
                               .generation = 1,
                               .sequence = 1,
                               .digest = 77,
                               .length = (uint32_t)length,
                               .crc = checksum_crc32c(0, body, length)};
}

void rig_land(struct rig *rig, const struct shard_action *take, const void *body)
{
    cr_assert_not_null(take);
    void *place = shard_address(rig->local->shard, take->offset);
    memcpy(place, body, take->length);
    rig_event(rig, (struct shard_event){.kind = SHARD_LANDED,
                                        .token = take->token,
                                        .length = take->length,
                                        .crc = checksum_crc32c(0, place, take->length)});
}

void rig_push(struct rig *rig, uint64_t peer, struct head_chunk head, const void *body)
{
    uint64_t bytes;
    shard_slot(rig->local->shard, head.slot, &bytes);
    for (head.offset = 0; head.offset < bytes; head.offset += RIG_CHUNK) {
        const uint64_t rest = bytes - head.offset;
        const char *piece = (const char *)body + head.offset;
        head.length = (uint32_t)(rest < RIG_CHUNK ? rest : RIG_CHUNK);
        head.crc = checksum_crc32c(0, piece, head.length);
        rig_head(rig, peer, &head, head.length);
        const struct shard_action *take = rig_action(rig, SHARD_TAKE, 0);
        cr_assert_not_null(take);
        const struct shard_action copy = *take;
        rig_land(rig, &copy, piece);
    }
}

const struct shard_action *rig_action(const struct rig *rig, uint32_t kind, uint32_t n)
{
    for (uint32_t i = 0; i < rig->local->outbox_count; i++)
        if (rig->local->outbox[i].kind == kind && n-- == 0)
            return &rig->local->outbox[i];
    return NULL;
}

const struct message *rig_sent(const struct rig *rig, uint32_t kind, uint32_t n)
{
    for (uint32_t i = 0; i < rig->local->outbox_count; i++) {
        const struct shard_action *action = &rig->local->outbox[i];
        if (action->kind == SHARD_SEND && action->message.kind == kind && n-- == 0)
            return &action->message;
    }
    return NULL;
}

const struct shard_action *rig_reply(const struct rig *rig, uint8_t head_kind, uint32_t n)
{
    for (uint32_t i = 0; i < rig->local->outbox_count; i++) {
        const struct shard_action *action = &rig->local->outbox[i];
        if (action->kind == SHARD_REPLY && action->head.kind == head_kind && n-- == 0)
            return action;
    }
    return NULL;
}

void rig_fill(struct rig *rig, uint32_t slot, float scale)
{
    uint64_t bytes;
    float *floats = shard_slot(rig->local->shard, slot, &bytes);
    memset(floats, 0, bytes);
    for (uint64_t i = 0; i < rig->options.member.count; i++)
        floats[i] = scale * (float)((int)((rig->options.member.first + i) % 7) - 3);
}
