/* Building a layout, its blocks and its shards. The bytes of a layout are model_bytes.c, comparing
 * two of them is model_difference.c. */
#include "common/model.h"

#include "common/checksum.h"

#include <stdlib.h>
#include <string.h>

#define BLOCKS_WANTED 128u /* so that 64 shards differ by half a percent of the model at most */

gradweir_status model_new(uint32_t tensors_max, struct model **model)
{
    if (tensors_max == 0 || tensors_max > MODEL_TENSORS_MAX)
        return fail(GRADWEIR_ERR_INVALID, "a model has 1 to %u tensors, not %u", MODEL_TENSORS_MAX,
                    tensors_max);
    const size_t each = sizeof(struct model_tensor) + 2 * sizeof(struct model_tensor *);
    struct model *fresh = calloc(1, sizeof *fresh + tensors_max * each);
    if (!fresh)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a model of %u tensors", tensors_max);
    /* One allocation: the model, its tensors, two arrays of pointers. All are 8-byte aligned. */
    fresh->tensors = (struct model_tensor *)(fresh + 1);
    fresh->by_name = (const struct model_tensor **)(fresh->tensors + tensors_max);
    fresh->by_offset = fresh->by_name + tensors_max;
    fresh->tensors_max = tensors_max;
    fresh->groups_count = 1;
    fresh->groups[0] = (struct model_group){
        .learning_rate_scale = 1.0,
        .weight_decay = MODEL_AS_SET,
        .beta1 = MODEL_AS_SET,
        .beta2 = MODEL_AS_SET,
    };
    *model = fresh;
    return GRADWEIR_OK;
}

void model_free(struct model *model)
{
    free(model);
}

/* Comparisons are written so that NaN fails them. */
static bool set_or_in(double value, double low, double below)
{
    return value == MODEL_AS_SET || (value >= low && value < below);
}

gradweir_status model_group_check(const struct model_group *group)
{
    if (!(group->learning_rate_scale >= 0.0 && group->learning_rate_scale <= 1e6))
        return fail(GRADWEIR_ERR_INVALID, "a group's learning-rate scale is 0 to 1e6, not %g",
                    group->learning_rate_scale);
    if (!set_or_in(group->weight_decay, 0.0, 1e6))
        return fail(GRADWEIR_ERR_INVALID, "a group's weight decay is 0 to 1e6 or -1, not %g",
                    group->weight_decay);
    if (!set_or_in(group->beta1, 0.0, 1.0) || !set_or_in(group->beta2, 0.0, 1.0))
        return fail(GRADWEIR_ERR_INVALID, "a group's betas are in [0, 1) or -1, not %g and %g",
                    group->beta1, group->beta2);
    return GRADWEIR_OK;
}

/* Adding 0 makes -0 the same bits as 0, so that equal layouts have equal hashes. */
static void keep_group(struct model_group *kept, const struct model_group *group)
{
    kept->learning_rate_scale = group->learning_rate_scale + 0.0;
    kept->weight_decay = group->weight_decay + 0.0;
    kept->beta1 = group->beta1 + 0.0;
    kept->beta2 = group->beta2 + 0.0;
    kept->frozen = group->frozen;
}

gradweir_status model_group_add(struct model *model, const struct model_group *group,
                                uint32_t *number)
{
    ASSERT(model->block == 0);
    TRY(model_group_check(group));
    if (model->groups_count == MODEL_GROUPS_MAX)
        return fail(GRADWEIR_ERR_FULL, "a model has at most %u groups", MODEL_GROUPS_MAX);
    *number = model->groups_count++;
    keep_group(&model->groups[*number], group);
    return GRADWEIR_OK;
}

gradweir_status model_group_default(struct model *model, const struct model_group *group)
{
    ASSERT(model->block == 0);
    TRY(model_group_check(group));
    keep_group(&model->groups[0], group);
    return GRADWEIR_OK;
}

static gradweir_status check_name(const char *name)
{
    const size_t length = strnlen(name, MODEL_NAME_MAX + 1);
    if (length == 0 || length > MODEL_NAME_MAX)
        return fail(GRADWEIR_ERR_INVALID, "a tensor's name has 1 to %d bytes", MODEL_NAME_MAX);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return fail(GRADWEIR_ERR_INVALID, "a tensor's name has a control character in it");
    return GRADWEIR_OK;
}

static gradweir_status count_elements(const struct model_tensor *tensor, uint64_t *elements)
{
    if (tensor->dimensions > MODEL_DIMENSIONS_MAX)
        return fail(GRADWEIR_ERR_INVALID, "%s: %u dimensions, at most %d are allowed", tensor->name,
                    tensor->dimensions, MODEL_DIMENSIONS_MAX);
    uint64_t product = 1;
    for (uint32_t i = 0; i < tensor->dimensions; i++) {
        if (tensor->shape[i] == 0)
            return fail(GRADWEIR_ERR_INVALID, "%s: dimension %u is 0", tensor->name, i);
        if (tensor->shape[i] > MODEL_ELEMENTS_MAX / product)
            return fail(GRADWEIR_ERR_INVALID, "%s: more than 2^40 elements", tensor->name);
        product *= tensor->shape[i];
    }
    *elements = product;
    return GRADWEIR_OK;
}

gradweir_status model_add(struct model *model, const struct model_tensor *tensor)
{
    ASSERT(model->block == 0);
    TRY(check_name(tensor->name));
    if (model->tensors_count == model->tensors_max)
        return fail(GRADWEIR_ERR_FULL, "%s: this model has room for %u tensors", tensor->name,
                    model->tensors_max);
    if (tensor->kind != MODEL_PARAMETER && tensor->kind != MODEL_MOMENTS)
        return fail(GRADWEIR_ERR_INVALID, "%s: no such kind: %d", tensor->name, (int)tensor->kind);
    if (tensor->group >= model->groups_count)
        return fail(GRADWEIR_ERR_INVALID, "%s: group %u, but there are %u", tensor->name,
                    tensor->group, model->groups_count);
    struct model_tensor copy = {
        .kind = tensor->kind, .group = tensor->group, .dimensions = tensor->dimensions};
    TRY(count_elements(tensor, &copy.elements));
    memcpy(copy.name, tensor->name, strlen(tensor->name));
    memcpy(copy.shape, tensor->shape, tensor->dimensions * sizeof *copy.shape);

    const bool is_parameter = copy.kind == MODEL_PARAMETER;
    uint64_t *section = is_parameter ? &model->elements : &model->moments;
    const uint64_t limit = is_parameter ? MODEL_ELEMENTS_MAX : MODEL_MOMENTS_MAX;
    if (copy.elements > limit - *section)
        return fail(GRADWEIR_ERR_FULL, "%s: more than %llu elements of its kind in all", copy.name,
                    (unsigned long long)limit);
    copy.offset = *section;
    *section += copy.elements;
    struct model_tensor *place = &model->tensors[model->tensors_count];
    *place = copy;
    model->by_name[model->tensors_count++] = place;
    if (is_parameter)
        model->by_offset[model->parameter_tensors++] = place;
    return GRADWEIR_OK;
}

static int compare_names(const void *a, const void *b)
{
    const struct model_tensor *const *left = a;
    const struct model_tensor *const *right = b;
    return strcmp((*left)->name, (*right)->name);
}

static uint64_t block_for(uint64_t elements)
{
    uint64_t block = MODEL_BLOCK;
    while (block > MODEL_BLOCK_MIN && elements < BLOCKS_WANTED * block)
        block /= 2;
    return block;
}

static gradweir_status hash_layout(const struct model *model, uint64_t *hash)
{
    const size_t size = model_encoded_bytes(model);
    void *bytes = malloc(size);
    if (!bytes)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory to hash the layout (%zu bytes)", size);
    const gradweir_status status = model_encode(model, bytes, size);
    if (status == GRADWEIR_OK)
        *hash = checksum_hash64(0, bytes, size);
    free(bytes);
    return status;
}

gradweir_status model_seal(struct model *model)
{
    ASSERT(model->block == 0);
    if (model->elements == 0)
        return fail(GRADWEIR_ERR_INVALID, "the model has no parameters");
    qsort(model->by_name, model->tensors_count, sizeof(struct model_tensor *), compare_names);
    for (uint32_t i = 1; i < model->tensors_count; i++)
        if (strcmp(model->by_name[i - 1]->name, model->by_name[i]->name) == 0)
            return fail(GRADWEIR_ERR_INVALID, "two tensors are named %s", model->by_name[i]->name);
    TRY(hash_layout(model, &model->hash));
    model->block = block_for(model->elements);
    model->blocks = (model->elements + model->block - 1) / model->block;
    return GRADWEIR_OK;
}

const struct model_tensor *model_find(const struct model *model, const char *name)
{
    ASSERT(model->block != 0);
    uint32_t low = 0, high = model->tensors_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = strcmp(name, model->by_name[middle]->name);
        if (order == 0)
            return model->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const struct model_tensor *model_tensor_at(const struct model *model, uint64_t element)
{
    ASSERT(element < model->elements);
    /* The last tensor that starts at or before the element. */
    uint32_t low = 0, high = model->parameter_tensors;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (model->by_offset[middle]->offset <= element)
            low = middle;
        else
            high = middle;
    }
    return model->by_offset[low];
}

struct model_range model_shard(const struct model *model, uint32_t shards, uint32_t index)
{
    ASSERT(model->block != 0 && shards > 0 && shards <= MODEL_SHARDS_MAX && index < shards);
    /* blocks <= 2^24 here and shards <= 64: the products stay far below 2^64. */
    const uint64_t first_block = model->blocks * index / shards;
    const uint64_t end_block = model->blocks * (index + 1) / shards;
    const uint64_t first = first_block * model->block;
    const uint64_t end = end_block == model->blocks ? model->elements : end_block * model->block;
    /* An empty share behind the last block must not start past the end. */
    return (struct model_range){
        .first = first < end ? first : end,
        .elements = first < end ? end - first : 0,
        .first_block = first_block,
        .blocks = end_block - first_block,
        .moments = index == shards - 1 ? model->moments : 0,
    };
}
