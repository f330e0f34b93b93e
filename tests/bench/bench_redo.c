/* What redo tiles and digests cost a step: three cores in one process (not warm; warm; warm and
 * with digests) take the same steps in turn; the ratios of their medians to the first one's.
 *
 *      bench_redo [elements [steps [tile_elements]]]
 *
 * 16 Mi elements of Adam are 256 MiB of parameters and state: more than any cache. The cores run
 * through shard_local, so events, journal and ledger are in the time. Not part of ctest. */
#include "common/clock.h"
#include "server/shard/shard_local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEPS_MAX = 1000 };

struct one {
    struct shard_local *local;
    struct ledger ledger;
    uint64_t times_ns[STEPS_MAX];
};

static struct law_settings law;
enum { COLD, WARM, DIGESTS, KINDS };
static struct one ones[KINDS];

static void must(gradweir_status status)
{
    if (status == GRADWEIR_OK)
        return;
    fprintf(stderr, "%s\n", fail_reason());
    exit(1);
}

static void say(struct one *one, struct record record)
{
    struct message message = {.kind = MESSAGE_RECORD, .epoch = 1, .timeline = 1};
    ledger_seal(&one->ledger, &record);
    must(ledger_apply(&one->ledger, &record));
    message.record = record;
    shard_local_event(one->local, &(struct shard_event){.kind = SHARD_MESSAGE,
                                                        .now_ns = (int64_t)clock_now_ns(),
                                                        .message = &message});
    if (shard_ledger(one->local->shard)->index != one->ledger.index) {
        fprintf(stderr, "the core did not log record %llu\n",
                (unsigned long long)one->ledger.index);
        exit(1);
    }
}

static void start(struct one *one, const struct model *model, struct shard_options *options)
{
    must(shard_local_open(model, &law, options, NULL, &one->local));
    ledger_init(&one->ledger);
    struct record map = {.kind = RECORD_MAP};
    map.map = (struct record_map){.members = 1,
                                  .counts = {options->member.count},
                                  .layout_hash = model->hash,
                                  .slots = options->member.slots,
                                  .groups_count = 1};
    must(ledger_settings_write(&law, &options->optimizer, map.map.settings,
                               sizeof map.map.settings));
    say(one, map);
    struct record join = {.kind = RECORD_JOIN};
    join.join = (struct record_join){.incarnation = 1, .role = ROLE_WORKER, .outstanding_max = 4};
    join.join.identity[0] = 'a';
    say(one, join);
    uint64_t bytes;
    for (uint32_t slot = 0; slot < 2; slot++) {
        float *floats = shard_slot(one->local->shard, slot, &bytes);
        for (uint64_t i = 0; i < bytes / sizeof *floats; i++)
            floats[i] = 0.01f * (float)((int)(i % 17) - 8);
    }
    struct record first = {.kind = RECORD_FIRST};
    first.first = (struct record_first){.name = {0, 1, 1}, .slot = 0, .generation = 1, .digest = 7};
    say(one, first);
}

/* Of this thread: what else the machine does counts only as far as it takes memory's time. */
static uint64_t busy_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * CLOCK_SECOND + (uint64_t)time.tv_nsec;
}

static uint64_t step(struct one *one)
{
    const uint64_t version = one->ledger.law.version + 1;
    struct record admit = {.kind = RECORD_ADMIT}, record = {.kind = RECORD_STEP};
    admit.admit = (struct record_admit){.name = {0, 1, version + 1},
                                        .slot = 1,
                                        .generation = version,
                                        .digest = 7,
                                        .basis = version - 1,
                                        .samples = 1,
                                        .sample_weight = 1,
                                        .clip = 1};
    record.step = (struct record_step){
        .version = version, .t = version, .cause = STEP_DUE, .groups_count = 1, .entries_count = 1};
    record.step.groups[0] =
        (struct step_group){.learning_rate = 1e-3,
                            .bias_correction1 = arithmetic_bias(law.beta1, version),
                            .bias_correction2 = arithmetic_bias(law.beta2, version)};
    const float weight = 1;
    record.step.entries[0].slot = 1;
    memcpy(&record.step.entries[0].weight, &weight, sizeof weight);
    say(one, admit);
    struct message whole = {.kind = MESSAGE_WHOLE, .epoch = 1, .timeline = 1};
    whole.whole.version = version - 1;
    shard_local_event(one->local, &(struct shard_event){.kind = SHARD_MESSAGE,
                                                        .now_ns = (int64_t)clock_now_ns(),
                                                        .message = &whole});
    const uint64_t begin = busy_ns();
    say(one, record);
    return busy_ns() - begin;
}

static int compare(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* False: they did not end with the same bits. */
static bool tell(uint64_t elements, uint64_t steps)
{
    static const char *names[KINDS] = {"cold", "redo tiles", "redo tiles and digests"};
    uint64_t version;
    bool equal = true;
    printf("%llu elements, %llu steps each, median and least:\n", (unsigned long long)elements,
           (unsigned long long)steps);
    for (int k = COLD; k < KINDS; k++) {
        qsort(ones[k].times_ns, (size_t)steps, sizeof(uint64_t), compare);
        const double median = (double)ones[k].times_ns[steps / 2];
        const double least = (double)ones[k].times_ns[0];
        printf("%-22s %9.3f ms x %.3f   %9.3f ms x %.3f\n", names[k], median / 1e6,
               median / (double)ones[COLD].times_ns[steps / 2], least / 1e6,
               least / (double)ones[COLD].times_ns[0]);
        equal &=
            memcmp(shard_parameters(ones[COLD].local->shard, &version),
                   shard_parameters(ones[k].local->shard, &version), elements * sizeof(float)) == 0;
    }
    printf("bits %s\n", equal ? "equal" : "DIFFER");
    return equal;
}

int main(int count, char **arguments)
{
    const uint64_t elements = count > 1 ? strtoull(arguments[1], NULL, 10) : (uint64_t)16 << 20;
    const uint64_t asked = count > 2 ? strtoull(arguments[2], NULL, 10) : 40;
    const uint64_t steps = asked < STEPS_MAX ? asked : STEPS_MAX;
    const struct model_tensor tensor = {.name = "w", .dimensions = 1, .shape = {elements}};
    struct model *model;
    law = law_classic();
    must(model_new(1, &model));
    must(model_add(model, &tensor));
    must(model_seal(model));
    struct shard_options options = {.member = {.members = 1,
                                               .count = elements,
                                               .slots = 2,
                                               .parameter_slots = 3,
                                               .layout_hash = model->hash},
                                    .optimizer = {.epsilon = 1e-8},
                                    .sessions_max = 1,
                                    .pulls_max = 1,
                                    .chunk_bytes = (uint64_t)4 << 20};
    options.tile_elements = count > 3 ? strtoull(arguments[3], NULL, 10) : 0;
    for (int kind = COLD; kind < KINDS; kind++) {
        options.warm = kind >= WARM;
        options.digest = kind == DIGESTS;
        start(&ones[kind], model, &options);
    }
    for (uint64_t i = 0; i < steps; i++)
        for (uint64_t k = 0; k < KINDS; k++) {
            struct one *one = &ones[(k + i) % KINDS]; /* none is always the first */
            one->times_ns[i] = step(one);
        }
    const bool equal = tell(elements, steps);
    for (int k = COLD; k < KINDS; k++)
        shard_local_close(ones[k].local);
    model_free(model);
    return equal ? 0 : 1;
}
