#include "tests/unit/warm_script.h"

#include <criterion/criterion.h>
#include <string.h>

enum { WORKERS = 2, TILE = 256 };

struct rig warm_rig;
struct warm_operation warm_script[WARM_OPERATIONS_MAX];
uint32_t warm_script_count;

void warm_body(float scale, char *body)
{
    const uint64_t elements = warm_rig.options.member.count;
    float numbers[RIG_ELEMENTS];
    for (uint64_t i = 0; i < elements; i++)
        numbers[i] = scale * (float)((int)(i % 7) - 3);
    memcpy(body, numbers, elements * sizeof(float));
    for (int i = 0; i < RIG_MOMENTS; i++) {
        const struct moments moments = {.count = 2, .mean = scale + (float)i, .m2 = scale * scale};
        memcpy(body + elements * sizeof(float) + (uint64_t)i * sizeof moments, &moments,
               sizeof moments);
    }
}

/* Writing the script, while the undisturbed run follows it. */

static struct warm_operation *add(enum warm_kind kind)
{
    cr_assert(warm_script_count < WARM_OPERATIONS_MAX);
    struct warm_operation *operation = &warm_script[warm_script_count++];
    *operation = (struct warm_operation){.kind = kind};
    return operation;
}

static void add_record(struct record record)
{
    cr_assert(rig_record(&warm_rig, &record));
    add(WARM_RECORD)->record = record;
}

/* A body of worker w into a slot. */
static struct name add_push(uint32_t worker, uint32_t slot, float scale)
{
    static uint64_t generations[RIG_SLOTS];
    if (warm_rig.ledger.index < 4)
        memset(generations, 0, sizeof generations);
    struct warm_operation *operation = add(WARM_PUSH);
    operation->slot = slot;
    operation->worker = worker;
    operation->generation = ++generations[slot];
    operation->sequence = warm_rig.ledger.workers[worker].last_sequence + 1;
    operation->scale = scale;
    uint64_t bytes;
    warm_body(scale, shard_slot(warm_rig.local->shard, slot, &bytes));
    return (struct name){worker, 1, operation->sequence};
}

static void add_close(uint32_t slot)
{
    struct warm_operation *operation = add(WARM_CLOSE);
    operation->slot = slot;
    for (uint32_t i = 0; i + 1 < warm_script_count; i++)
        if (warm_script[i].kind == WARM_PUSH && warm_script[i].slot == slot)
            operation->generation = warm_script[i].generation;
    operation->record.index = warm_rig.ledger.index;
    rig_close(&warm_rig, slot, operation->generation, warm_rig.ledger.index);
}

static void add_admit(uint32_t worker, uint32_t slot, float scale)
{
    const struct name name = add_push(worker, slot, scale);
    struct record record = {.kind = RECORD_ADMIT};
    record.admit =
        (struct record_admit){.name = name,
                              .slot = slot,
                              .generation = warm_script[warm_script_count - 1].generation,
                              .digest = 77,
                              .basis = warm_rig.ledger.law.version,
                              .samples = 1,
                              .sample_weight = 1,
                              .clip = 1};
    add_record(record);
}

/* Any ratios will do: they are the record's. */
static void add_summed(enum warm_steps steps)
{
    const float factor = steps == WARM_LAMB ? 1.0f : 0.5f;
    struct record record = {.kind = RECORD_SUMMED};
    record.summed.version = warm_rig.ledger.law.version;
    record.summed.round = 1;
    memcpy(&record.summed.factor, &factor, sizeof factor);
    if (steps == WARM_LAMB)
        record.summed.ratios_count = warm_rig.model->parameter_tensors;
    for (uint32_t i = 0; i < record.summed.ratios_count; i++) {
        const float ratio = 0.5f + 0.125f * (float)((record.summed.version + i) % 8);
        memcpy(&record.summed.ratios[i], &ratio, sizeof ratio);
    }
    add_record(record);
}

static void add_step(const uint32_t *slots, uint32_t count, enum warm_steps steps)
{
    const uint64_t t = warm_rig.ledger.law.optimizer_step + 1;
    struct record record = {.kind = RECORD_STEP};
    record.step = (struct record_step){.version = warm_rig.ledger.law.version + 1,
                                       .t = t,
                                       .cause = STEP_DUE,
                                       .rounds = steps != WARM_AT_ONCE,
                                       .groups_count = 1,
                                       .entries_count = count};
    record.step.groups[0] =
        (struct step_group){.learning_rate = 0.01,
                            .bias_correction1 = arithmetic_bias(warm_rig.law.beta1, t),
                            .bias_correction2 = arithmetic_bias(warm_rig.law.beta2, t)};
    for (uint32_t i = 0; i < count; i++) {
        const float weight = 0.4f;
        record.step.entries[i].slot = slots[i];
        memcpy(&record.step.entries[i].weight, &weight, sizeof weight);
    }
    add_record(record);
    if (steps != WARM_AT_ONCE)
        add_summed(steps);
}

static void add_join(uint32_t worker)
{
    struct record record = {.kind = RECORD_JOIN};
    record.join = (struct record_join){
        .worker = worker, .incarnation = 1, .role = ROLE_WORKER, .outstanding_max = 4};
    record.join.identity[0] = (char)('a' + worker);
    add_record(record);
    add(WARM_ENTRY)->worker = worker;
}

void warm_script_write(enum warm_steps steps)
{
    rig_init(&warm_rig, RIG_ELEMENTS);
    warm_rig.law.algorithm = steps == WARM_LAMB ? ARITHMETIC_LAMB : ARITHMETIC_ADAM;
    warm_rig.options.optimizer.weight_decay = steps == WARM_LAMB ? 0.01 : 0;
    warm_rig.law.window = 3;
    warm_rig.law.stride = 2;
    warm_rig.law.clip_average = steps == WARM_CLIPPED;
    warm_rig.options.tile_elements = TILE;
    warm_script_count = 0;
    rig_start(&warm_rig, 0, 1);
    add(WARM_RECORD)->record = warm_rig.map;
    for (uint32_t i = 0; i < WORKERS; i++)
        add_join(i);
    const struct name first = add_push(0, 0, 0.5f);
    struct record record = {.kind = RECORD_FIRST};
    record.first = (struct record_first){.name = first, .slot = 0, .generation = 1, .digest = 77};
    add_record(record);
    add_close(0);
    for (uint32_t i = 0; i < 12; i++) {
        add_admit(i % WORKERS, 1 + i % 4, 0.1f * (float)(i + 1));
        if (i >= 3)
            add_close(1 + (i - 3) % 4); /* out of the window */
        const uint32_t slots[] = {1 + (i + 2) % 4, 1 + (i + 3) % 4, 1 + i % 4};
        if (i % 2)
            add_step(i == 1 ? slots + 1 : slots, i == 1 ? 2 : 3, steps);
    }
}
