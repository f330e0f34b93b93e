#include "common/sums.h"

#include "common/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TENSORS = 70, ELEMENTS_MAX = 40000 };

static struct model *model;
static double theta[ELEMENTS_MAX], update[ELEMENTS_MAX]; /* squares */
static const struct optimizer_options optimizer = {.weight_decay = 0.01};

/* Tensors that no block border suits; one of a frozen group, one of a group without decay. */
static void make(void)
{
    struct random random;
    random_init(&random, 5);
    const struct model_group frozen = {.learning_rate_scale = 1,
                                       .weight_decay = MODEL_AS_SET,
                                       .beta1 = MODEL_AS_SET,
                                       .beta2 = MODEL_AS_SET,
                                       .frozen = true};
    struct model_group plain = frozen;
    plain.frozen = false;
    plain.weight_decay = 0;
    uint32_t group;
    cr_assert_eq(model_new(TENSORS, &model), GRADWEIR_OK);
    cr_assert_eq(model_group_add(model, &frozen, &group), GRADWEIR_OK);
    cr_assert_eq(model_group_add(model, &plain, &group), GRADWEIR_OK);
    for (uint32_t i = 0; i < TENSORS; i++) {
        struct model_tensor tensor = {.group = i == 3 ? 1 : i == 4 ? 2 : 0, .dimensions = 1};
        snprintf(tensor.name, sizeof tensor.name, "t%u", i);
        tensor.shape[0] = i % 9 == 0 ? 1 : 1 + random_below(&random, i % 5 == 0 ? 3000 : 300);
        cr_assert_eq(model_add(model, &tensor), GRADWEIR_OK);
    }
    cr_assert_eq(model_seal(model), GRADWEIR_OK);
    cr_assert(model->elements < ELEMENTS_MAX && model->blocks > 8);
    for (uint64_t i = 0; i < model->elements; i++) {
        theta[i] = random_uniform(&random);
        update[i] = random_uniform(&random) * 3;
    }
}

struct sent {
    struct message_sums messages[64];
    uint32_t count;
    uint64_t nodes;
};

static void send_series(struct sent *sent, const struct model_range *range, const double *squares,
                        uint64_t from, uint64_t to)
{
    struct arithmetic_node nodes[ARITHMETIC_NODES_MAX];
    double sums[4096] = {0};
    const uint64_t first = from / model->block, count = (to - 1) / model->block + 1 - first;
    for (uint64_t i = from; i < to; i++)
        sums[i / model->block - first] += squares[i];
    const size_t n = arithmetic_tree_cover(first, sums, (size_t)count, nodes);
    for (size_t i = 0; i < n; i++, sent->nodes++) {
        if (sent->nodes % SUM_NODES_MAX == 0)
            sent->messages[sent->count++] = (struct message_sums){.version = 7,
                                                                  .round = 1,
                                                                  .first_block = range->first_block,
                                                                  .blocks = range->blocks,
                                                                  .first_node = sent->nodes};
        struct message_sums *message = &sent->messages[sent->count - 1];
        message->nodes[message->nodes_count++] = nodes[i].sum;
    }
}

static void send_tensors(uint32_t members, uint32_t member, struct sent *sent)
{
    const struct model_range range = model_shard(model, members, member);
    const uint64_t end = range.first + range.elements;
    memset(sent, 0, sizeof *sent);
    for (uint32_t i = 0; i < model->parameter_tensors; i++) {
        const struct model_tensor *tensor = model->by_offset[i];
        const uint64_t from = tensor->offset > range.first ? tensor->offset : range.first;
        const uint64_t rest = tensor->offset + tensor->elements, to = rest < end ? rest : end;
        if (from >= to)
            continue;
        send_series(sent, &range, theta, from, to);
        send_series(sent, &range, update, from, to);
    }
}

static void ratios_of(uint32_t members, uint32_t *ratios)
{
    struct sums *sums;
    static struct sent sent;
    cr_assert_eq(sums_new(model, SUMS_TENSORS, members, &sums), GRADWEIR_OK);
    sums_begin(sums, 7);
    for (uint32_t i = members; i-- > 0;) {
        send_tensors(members, i, &sent);
        cr_assert_eq(sent.nodes, sums_count(model, SUMS_TENSORS, members, i));
        for (uint32_t k = sent.count; k-- > 0;) { /* overtaking each other, and each twice */
            cr_assert_not(sums_whole(sums));
            cr_assert(sums_take(sums, i, &sent.messages[k]));
            cr_assert(sums_take(sums, i, &sent.messages[k]));
        }
        cr_assert(sums_has(sums, i));
    }
    cr_assert(sums_whole(sums));
    cr_assert(sums_ratios(sums, &optimizer, ratios));
    sums_free(sums);
}

Test(sums, trust_ratios_are_those_of_the_tensors_and_any_number_of_members_gives_the_same_bits)
{
    uint32_t one[TENSORS], many[TENSORS];
    make();
    ratios_of(1, one);
    for (uint32_t members = 2; members <= 9; members++) {
        ratios_of(members, many);
        cr_assert_eq(memcmp(one, many, sizeof one), 0, "%u members", members);
    }
    for (uint32_t i = 0; i < TENSORS; i++) {
        const struct model_tensor *tensor = model->by_offset[i];
        double squares = 0, updates = 0;
        float ratio;
        memcpy(&ratio, &one[i], sizeof ratio);
        for (uint64_t k = tensor->offset; k < tensor->offset + tensor->elements; k++) {
            squares += theta[k];
            updates += update[k];
        }
        const bool still = tensor->group != 0;
        cr_assert_float_eq((double)ratio, still ? 1 : sqrt(squares / updates), 1e-6);
    }
    model_free(model);
}

Test(sums, what_cannot_be_a_member_s_is_refused_and_nothing_of_another_version_counts)
{
    struct sums *sums;
    static struct sent sent;
    make();
    cr_assert_eq(sums_new(model, SUMS_TENSORS, 2, &sums), GRADWEIR_OK);
    sums_begin(sums, 7);
    send_tensors(2, 1, &sent);
    cr_assert_not(sums_take(sums, 0, &sent.messages[0]), "the range of another");
    struct message_sums wrong = sent.messages[0];
    wrong.version = 8;
    cr_assert_not(sums_take(sums, 1, &wrong));
    wrong = sent.messages[0];
    wrong.nodes_count--;
    cr_assert_not(sums_take(sums, 1, &wrong));
    wrong = sent.messages[0];
    wrong.first_node = 1;
    cr_assert_not(sums_take(sums, 1, &wrong));
    wrong.first_node = UINT64_MAX / SUM_NODES_MAX * SUM_NODES_MAX;
    cr_assert_not(sums_take(sums, 1, &wrong));
    cr_assert_not(sums_has(sums, 1));
    for (uint32_t k = 0; k < sent.count; k++)
        cr_assert(sums_take(sums, 1, &sent.messages[k]));
    cr_assert(sums_has(sums, 1));
    sums_begin(sums, 8);
    cr_assert_not(sums_has(sums, 1));
    sums_free(sums);
    model_free(model);
}

Test(sums, a_sum_that_is_no_number_makes_no_ratio_unless_its_group_is_frozen)
{
    struct sums *sums;
    uint32_t ratios[TENSORS];
    static struct sent sent;
    make();
    for (uint32_t i = 0; i < 2; i++) {
        const struct model_tensor *tensor = model_find(model, i == 0 ? "t3" : "t2");
        update[tensor->offset] = NAN;
        cr_assert_eq(sums_new(model, SUMS_TENSORS, 1, &sums), GRADWEIR_OK);
        sums_begin(sums, 7);
        send_tensors(1, 0, &sent);
        for (uint32_t k = 0; k < sent.count; k++)
            cr_assert(sums_take(sums, 0, &sent.messages[k]));
        cr_assert_eq(sums_ratios(sums, &optimizer, ratios), i == 0);
        sums_free(sums);
    }
    model_free(model);
}
