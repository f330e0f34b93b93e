/* See sums.h. */
#include "common/sums.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sums {
    const struct model *model;
    enum sums_kind kind;
    uint32_t members;
    uint64_t version;
    uint64_t counts[MEMBERS_MAX], missing[MEMBERS_MAX]; /* nodes; messages */
    double *nodes[MEMBERS_MAX];                         /* into one allocation */
    bool *came[MEMBERS_MAX];                            /* message by message */
};

enum sums_kind sums_kind_of(const struct law_settings *law)
{
    return law->algorithm == ARITHMETIC_LAMB ? SUMS_TENSORS : SUMS_AVERAGE;
}

static uint64_t cover(uint64_t first, uint64_t count)
{
    struct arithmetic_node nodes[ARITHMETIC_NODES_MAX];
    return arithmetic_tree_places(first, count, nodes);
}

bool sums_blocks(const struct model *model, const struct model_tensor *tensor,
                 const struct model_range *range, uint64_t *first, uint64_t *count)
{
    const uint64_t end = range->first + range->elements;
    const uint64_t from = tensor->offset > range->first ? tensor->offset : range->first;
    const uint64_t rest = tensor->offset + tensor->elements;
    const uint64_t to = rest < end ? rest : end;
    if (from >= to)
        return false;
    *first = from / model->block;
    *count = (to - 1) / model->block + 1 - *first;
    return true;
}

uint64_t sums_count(const struct model *model, enum sums_kind kind, uint32_t members,
                    uint32_t member)
{
    const struct model_range range = model_shard(model, members, member);
    if (kind == SUMS_AVERAGE)
        return cover(range.first_block, range.blocks);
    uint64_t nodes = 0, first, count;
    for (uint32_t i = 0; i < model->parameter_tensors; i++)
        if (sums_blocks(model, model->by_offset[i], &range, &first, &count))
            nodes += 2 * cover(first, count);
    return nodes;
}

static uint64_t messages(uint64_t nodes)
{
    return (nodes + SUM_NODES_MAX - 1) / SUM_NODES_MAX;
}

gradweir_status sums_new(const struct model *model, enum sums_kind kind, uint32_t members,
                         struct sums **out)
{
    struct sums *sums = calloc(1, sizeof *sums);
    uint64_t nodes = 0, parts = 0;
    if (!sums)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the sums of a step");
    sums->model = model;
    sums->kind = kind;
    sums->members = members;
    for (uint32_t i = 0; i < members; i++) {
        sums->counts[i] = sums_count(model, kind, members, i);
        nodes += sums->counts[i];
        parts += messages(sums->counts[i]);
    }
    sums->nodes[0] = calloc((size_t)nodes + 1, sizeof(double));
    sums->came[0] = calloc((size_t)parts + 1, sizeof(bool));
    if (!sums->nodes[0] || !sums->came[0]) {
        sums_free(sums);
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the sums of a step");
    }
    for (uint32_t i = 1; i < members; i++) {
        sums->nodes[i] = sums->nodes[i - 1] + sums->counts[i - 1];
        sums->came[i] = sums->came[i - 1] + messages(sums->counts[i - 1]);
    }
    sums_begin(sums, 0);
    *out = sums;
    return GRADWEIR_OK;
}

void sums_free(struct sums *sums)
{
    if (!sums)
        return;
    free(sums->nodes[0]);
    free(sums->came[0]);
    free(sums);
}

void sums_begin(struct sums *sums, uint64_t version)
{
    sums->version = version;
    for (uint32_t i = 0; i < sums->members; i++) {
        sums->missing[i] = messages(sums->counts[i]);
        memset(sums->came[i], 0, sums->missing[i] * sizeof(bool));
    }
}

uint64_t sums_version(const struct sums *sums)
{
    return sums->version;
}

bool sums_take(struct sums *sums, uint32_t member, const struct message_sums *message)
{
    const struct model_range range = model_shard(sums->model, sums->members, member);
    const uint64_t first = message->first_node, total = sums->counts[member];
    const uint64_t rest = first < total ? total - first : 0;
    if (message->version != sums->version || message->blocks != range.blocks ||
        (range.blocks > 0 && message->first_block != range.first_block) ||
        first % SUM_NODES_MAX != 0 ||
        message->nodes_count != (rest < SUM_NODES_MAX ? rest : SUM_NODES_MAX))
        return false;
    if (rest == 0 || sums->came[member][first / SUM_NODES_MAX])
        return true;
    memcpy(sums->nodes[member] + first, message->nodes, message->nodes_count * sizeof(double));
    sums->came[member][first / SUM_NODES_MAX] = true;
    sums->missing[member]--;
    return true;
}

bool sums_has(const struct sums *sums, uint32_t member)
{
    return sums->missing[member] == 0;
}

bool sums_whole(const struct sums *sums)
{
    for (uint32_t i = 0; i < sums->members; i++)
        if (!sums_has(sums, i))
            return false;
    return true;
}

/* A member's nodes for some blocks, from `at` on; moves it past them. */
static void join(struct arithmetic_tree *tree, const double *sums, uint64_t *at, uint64_t first,
                 uint64_t count)
{
    struct arithmetic_node nodes[ARITHMETIC_NODES_MAX];
    const size_t n = arithmetic_tree_places(first, count, nodes);
    for (size_t i = 0; i < n; i++) {
        nodes[i].sum = sums[(*at)++];
        ASSERT(arithmetic_tree_add(tree, nodes[i]));
    }
}

double sums_norm(const struct sums *sums)
{
    struct arithmetic_tree tree;
    ASSERT(sums->kind == SUMS_AVERAGE && sums_whole(sums));
    arithmetic_tree_init(&tree);
    for (uint32_t i = 0; i < sums->members; i++) {
        const struct model_range range = model_shard(sums->model, sums->members, i);
        uint64_t at = 0;
        join(&tree, sums->nodes[i], &at, range.first_block, range.blocks);
    }
    return sqrt(arithmetic_tree_sum(&tree));
}

static float ratio_of(const struct sums *sums, const struct model_tensor *tensor,
                      const struct optimizer_options *optimizer, uint64_t at[MEMBERS_MAX])
{
    const struct model_group *group = &sums->model->groups[tensor->group];
    struct arithmetic_tree theta, update;
    uint64_t first, count;
    arithmetic_tree_init(&theta);
    arithmetic_tree_init(&update);
    for (uint32_t i = 0; i < sums->members; i++) {
        const struct model_range range = model_shard(sums->model, sums->members, i);
        if (!sums_blocks(sums->model, tensor, &range, &first, &count))
            continue;
        join(&theta, sums->nodes[i], &at[i], first, count);
        join(&update, sums->nodes[i], &at[i], first, count);
    }
    if (group->frozen)
        return 1.0f;
    const double decay = group->weight_decay >= 0 ? group->weight_decay : optimizer->weight_decay;
    const double theta_sum = arithmetic_tree_sum(&theta), sum = arithmetic_tree_sum(&update);
    if (!isfinite(theta_sum) || !isfinite(sum))
        return NAN;
    return arithmetic_trust_ratio(theta_sum, sum, decay, optimizer->always_adapt);
}

bool sums_ratios(const struct sums *sums, const struct optimizer_options *optimizer,
                 uint32_t *ratios)
{
    uint64_t at[MEMBERS_MAX] = {0};
    bool sound = true;
    ASSERT(sums->kind == SUMS_TENSORS && sums_whole(sums));
    for (uint32_t i = 0; i < sums->model->parameter_tensors; i++) {
        const float ratio = ratio_of(sums, sums->model->by_offset[i], optimizer, at);
        sound = sound && isfinite(ratio);
        memcpy(&ratios[i], &ratio, sizeof ratio);
    }
    return sound;
}
