#include "tests/unit/recorded_run.h"

#include "common/checksum.h"
#include "common/random.h"
#include "server/recording.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void make_model(struct recorded_run *run)
{
    const struct model_tensor tensors[] = {
        {.name = "w", .dimensions = 2, .shape = {30, 40}},
        {.name = "returns", .kind = MODEL_MOMENTS, .dimensions = 1, .shape = {2}},
        {.name = "b", .group = 1, .dimensions = 1, .shape = {333 + run->more}},
        {.name = "scale", .group = 1}};
    const struct model_group slow = {
        .learning_rate_scale = 0.5, .weight_decay = 0.01, .beta1 = 0.8, .beta2 = MODEL_AS_SET};
    uint32_t group;
    cr_assert_eq(model_new(4, &run->model), GRADWEIR_OK);
    cr_assert_eq(model_group_add(run->model, &slow, &group), GRADWEIR_OK);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        cr_assert_eq(model_add(run->model, &tensors[i]), GRADWEIR_OK);
    cr_assert_eq(model_seal(run->model), GRADWEIR_OK);
}

static struct law_settings make_law(void)
{
    struct law_settings law = law_classic();
    law.window = 4;
    law.stride = 2;
    law.decay = LAW_EXP;
    law.decay_beta = 0.7;
    law.algorithm = ARITHMETIC_ADAM;
    law.learning_rate = 0.01;
    law.clip_average = 20;
    law.window_algorithm = LAW_STACKS;
    return law;
}

static void open_shards(struct recorded_run *run, const struct law_settings *law,
                        const struct optimizer_options *optimizer, uint64_t bytes_max)
{
    for (uint32_t i = 0; i < RUN_MEMBERS; i++) {
        const struct model_range range = model_shard(run->model, RUN_MEMBERS, i);
        const struct shard_options options = {.member = {.shard = i,
                                                         .members = RUN_MEMBERS,
                                                         .first = range.first,
                                                         .count = range.elements,
                                                         .moments = range.moments > 0,
                                                         .slots = RUN_SLOTS,
                                                         .parameter_slots = 4,
                                                         .layout_hash = run->model->hash},
                                              .optimizer = *optimizer,
                                              .sessions_max = 1,
                                              .pulls_max = 1,
                                              .chunk_bytes = 4096,
                                              .pull_patience_ns = 1,
                                              .stripe_max = run->stripe_max,
                                              .keep = true};
        cr_assert_eq(shard_local_open(run->model, law, &options, NULL, &run->shards[i]), 0);
        cr_assert_eq(recording_open_shard(run->folder, run->model,
                                          &(struct recording_part){.shard = i,
                                                                   .members = RUN_MEMBERS,
                                                                   .codec = law->gradient_dtype},
                                          bytes_max, RECORDING_NEW, &run->bodies[i]),
                     GRADWEIR_OK);
    }
}

static void add_sums(struct recorded_run *run, const struct message_sums *sums)
{
    struct arithmetic_node nodes[ARITHMETIC_NODES_MAX];
    const size_t n = arithmetic_tree_places(sums->first_block, sums->blocks, nodes);
    for (size_t i = 0; i < n; i++) {
        nodes[i].sum = sums->nodes[i];
        cr_assert(arithmetic_tree_add(&run->sums, nodes[i]));
    }
}

static void give(struct recorded_run *run, uint32_t i, const struct record *record)
{
    const struct message message = {
        .kind = MESSAGE_RECORD, .epoch = 1, .timeline = 1, .record = *record};
    struct shard_local *local = run->shards[i];
    shard_local_event(local, &(struct shard_event){.kind = SHARD_MESSAGE, .message = &message});
    for (uint32_t k = 0; k < local->outbox_count; k++) {
        const struct shard_action *action = &local->outbox[k];
        cr_assert_neq(action->kind, SHARD_SAY, "%s", action->message.denied.text);
        if (action->kind == SHARD_KEEP)
            recording_body(run->bodies[i], action->token,
                           shard_address(local->shard, action->offset), action->length);
        if (action->kind == SHARD_SEND && action->message.kind == MESSAGE_SUMS)
            add_sums(run, &action->message.sums);
    }
}

static void append(struct recorded_run *run, struct record *record)
{
    ledger_seal(&run->ledger, record);
    cr_assert_eq(ledger_apply(&run->ledger, record), GRADWEIR_OK, "%s", fail_reason());
    recording_record(run->log, record);
    for (uint32_t i = 0; i < RUN_MEMBERS; i++)
        give(run, i, record);
}

/* The first step reads b's gradients only; later b sends each third. */
static uint32_t worker_of(uint32_t i)
{
    return i < 2 || i % 3 == 1;
}

static void clear(struct recorded_run *run, uint32_t slot)
{
    for (uint32_t i = 0; i < RUN_MEMBERS; i++) {
        uint64_t bytes;
        void *body = shard_slot(run->shards[i]->shard, slot, &bytes);
        memset(body, 0, bytes);
    }
}

/* What a gradient is does not depend on the cut. */
static void fill(struct recorded_run *run, uint32_t slot)
{
    struct random random;
    random_split(&random, 3, "gradient", ++run->fills);
    for (uint32_t i = 0; i < RUN_MEMBERS; i++) {
        const struct model_range range = model_shard(run->model, RUN_MEMBERS, i);
        uint64_t bytes;
        float *floats = shard_slot(run->shards[i]->shard, slot, &bytes);
        for (uint64_t k = 0; k < range.elements; k++)
            floats[k] = (float)(2 * random_uniform(&random) - 1);
        for (uint64_t k = 0; k < range.moments; k++) {
            const struct moments moments = {3, random_uniform(&random), random_uniform(&random)};
            memcpy((char *)(floats + range.elements) + k * sizeof moments, &moments,
                   sizeof moments);
        }
    }
}

static struct name next_name(struct recorded_run *run, uint32_t worker)
{
    return (struct name){worker, 1, ++run->sequences[worker]};
}

static void take_digest(struct recorded_run *run)
{
    uint64_t blocks[512], version = 0;
    size_t n = 0;
    for (uint32_t i = 0; i < RUN_MEMBERS; i++) {
        const float *parameters = shard_parameters(run->shards[i]->shard, &version);
        n += checksum_blocks(parameters, model_shard(run->model, RUN_MEMBERS, i).elements,
                             sizeof(float), run->model->block, blocks + n);
    }
    cr_assert(n <= sizeof blocks / sizeof *blocks);
    cr_assert(n == run->model->blocks && version == run->ledger.law.version);
    run->digests[version] = checksum_combine(blocks, n);
}

static void summed(struct recorded_run *run)
{
    struct record record = {.kind = RECORD_SUMMED};
    record.summed.version = run->ledger.law.version;
    record.summed.round = 1;
    record.summed.norm = sqrt(arithmetic_tree_sum(&run->sums));
    float factor =
        (float)arithmetic_clip_factor(record.summed.norm, run->ledger.law.settings.clip_average);
    run->clipped += factor < 1;
    if (run->wrong_factor && record.summed.version == RUN_VERSIONS)
        factor = 0.125f;
    memcpy(&record.summed.factor, &factor, sizeof factor);
    append(run, &record);
}

/* Exponential decay at the step, mean: w = s 0.7^t clip / sum of s 0.7^t, over a's gradients. */
static void weigh_without_b(struct recorded_run *run, struct record_step *step)
{
    const struct law *law = &run->ledger.law;
    double weights[WINDOW_MAX], sum = 0;
    uint32_t own = 0, k = 0;
    uint64_t youngest = UINT64_MAX;
    for (uint32_t i = 0; i < law_size(law); i++)
        if (law_at(law, i)->worker == 0 && law->version - law_at(law, i)->basis < youngest)
            youngest = law->version - law_at(law, i)->basis;
    for (uint32_t i = 0; i < law_size(law); i++, k++) {
        const struct law_entry *entry = law_at(law, i);
        const double weight = entry->worker == 0 ? entry->sample_weight : 0;
        const double decayed =
            weight == 0 ? 0 : weight * pow(0.7, (double)(law->version - entry->basis - youngest));
        weights[k] = decayed * entry->clip;
        sum += decayed;
        own += entry->worker == 0;
    }
    run->changed += own > 0 && own < k;
    run->emptied += own == 0;
    if (!run->without_b || (run->changed == 0 && run->emptied == 0))
        return;
    memset(&step->stacks, 0, sizeof step->stacks); /* partial sums have the gradients of both */
    if (step->algorithm == STEP_STACKS)
        step->algorithm = STEP_DIRECT;
    if (own == k)
        return;
    step->algorithm = own == 0 ? STEP_NOTHING : STEP_DIRECT;
    for (uint32_t i = 0; i < k; i++) {
        const float weight = own == 0 ? 0.0f : (float)(weights[i] / sum);
        memcpy(&step->entries[i].weight, &weight, sizeof weight);
    }
}

static void step(struct recorded_run *run, enum law_cause cause)
{
    struct law_step law;
    if (!law_due(&run->ledger.law, cause))
        return;
    law_step(&run->ledger.law, cause, &law);
    struct record record = {.kind = RECORD_STEP};
    record.step.version = law.version;
    record.step.t = law.optimizer_step;
    record.step.cause = cause;
    record.step.rounds = law.needs_sums;
    record.step.groups_count = run->model->groups_count;
    for (uint32_t i = 0; i < run->model->groups_count; i++) {
        const struct model_group *group = &run->model->groups[i];
        record.step.groups[i] = (struct step_group){
            law.learning_rate * group->learning_rate_scale,
            group->beta1 >= 0 ? arithmetic_bias(group->beta1, law.optimizer_step) : law.bias1,
            law.bias2};
    }
    record.step.entries_count = law.n;
    for (uint32_t i = 0; i < law.n; i++) {
        record.step.entries[i].slot = law.entries[i].slot;
        memcpy(&record.step.entries[i].weight, &law.entries[i].weight, sizeof(float));
    }
    ledger_stacks_write(&law.stacks, &record.step);
    weigh_without_b(run, &record.step);
    run->by_stacks += record.step.algorithm == STEP_STACKS;
    arithmetic_tree_init(&run->sums);
    append(run, &record);
    summed(run);
    take_digest(run);
}

/* The i-th gradient: each seventh is refused, and some are stale. */
static void gradient(struct recorded_run *run, uint32_t i)
{
    struct record record = {.kind = i % 7 == 6 ? RECORD_REFUSE : RECORD_ADMIT};
    const uint32_t slot = i % RUN_SLOTS;
    const uint64_t version = run->ledger.law.version;
    const struct name name = next_name(run, worker_of(i));
    fill(run, slot);
    run->of_b += record.kind == RECORD_ADMIT && name.worker == 1;
    if (run->without_b && name.worker == 1)
        clear(run, slot);
    if (record.kind == RECORD_REFUSE)
        record.refuse = (struct record_refuse){
            .name = name, .slot = slot, .generation = i + 2, .verdict = VERDICT_STALE};
    else
        record.admit = (struct record_admit){.name = name,
                                             .slot = slot,
                                             .generation = i + 2,
                                             .basis = version > i % 3 ? version - i % 3 : 0,
                                             .landed_version = version,
                                             .samples = 1 + i % 4,
                                             .sample_weight = 1 + i % 4,
                                             .clip = i % 5 == 0 ? 0.75 : 1};
    append(run, &record);
    step(run, LAW_DUE);
}

static void tune(struct recorded_run *run, const char *setting, const char *value)
{
    struct record record = {.kind = RECORD_TUNE};
    snprintf(record.tune.setting, sizeof record.tune.setting, "%s", setting);
    snprintf(record.tune.value, sizeof record.tune.value, "%s", value);
    append(run, &record);
}

static void begin(struct recorded_run *run, const struct law_settings *law,
                  const struct optimizer_options *optimizer)
{
    struct record map = {.kind = RECORD_MAP};
    map.map.members = RUN_MEMBERS;
    map.map.layout_hash = run->model->hash;
    map.map.slots = RUN_SLOTS;
    map.map.groups_count = run->model->groups_count;
    for (uint32_t i = 0; i < RUN_MEMBERS; i++) {
        const struct model_range range = model_shard(run->model, RUN_MEMBERS, i);
        map.map.firsts[i] = range.first;
        map.map.counts[i] = range.elements;
    }
    cr_assert_eq(ledger_settings_write(law, optimizer, map.map.settings, sizeof map.map.settings),
                 0);
    append(run, &map);
    struct record join = {.kind = RECORD_JOIN};
    join.join = (struct record_join){
        .incarnation = 1, .role = ROLE_WORKER, .outstanding_max = 4, .identity = "a"};
    append(run, &join);
    join.join.worker = 1;
    memcpy(join.join.identity, "b", 2);
    append(run, &join);
    struct record first = {.kind = RECORD_FIRST};
    first.first = (struct record_first){.name = next_name(run, 0), .slot = 7, .generation = 1};
    fill(run, 7);
    append(run, &first);
    take_digest(run);
}

void recorded_run_make(struct recorded_run *run, uint64_t bytes_max)
{
    const struct law_settings law = make_law();
    const struct optimizer_options optimizer = {.epsilon = 1e-8};
    snprintf(run->folder, sizeof run->folder, "recorded-XXXXXX");
    cr_assert_not_null(mkdtemp(run->folder));
    make_model(run);
    ledger_init(&run->ledger);
    cr_assert_eq(recording_open_log(run->folder, bytes_max, RECORDING_NEW, &run->log), GRADWEIR_OK);
    open_shards(run, &law, &optimizer, bytes_max);
    begin(run, &law, &optimizer);
    for (uint32_t i = 0; i < RUN_GRADIENTS; i++) {
        gradient(run, i);
        if (i == 10)
            tune(run, "clip_average", "0x1p+3");
        if (i == 14)
            step(run, LAW_FLUSH);
    }
    step(run, LAW_DRAIN);
    recording_close(run->log);
    for (uint32_t i = 0; i < RUN_MEMBERS; i++)
        recording_close(run->bodies[i]);
}

void recorded_run_end(struct recorded_run *run)
{
    static const char *const names[] = {"layout.model", "log.records", "shard-0.bodies",
                                        "shard-1.bodies"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", run->folder, names[i]);
        unlink(path);
    }
    rmdir(run->folder);
    for (uint32_t i = 0; i < RUN_MEMBERS; i++)
        shard_local_close(run->shards[i]);
    model_free(run->model);
}
