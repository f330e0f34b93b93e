#include "common/model.h"

#include "common/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct model *start(uint32_t tensors_max)
{
    struct model *model = NULL;
    cr_assert_eq(model_new(tensors_max, &model), GRADWEIR_OK);
    return model;
}

static gradweir_status add(struct model *model, const char *name, enum model_kind kind, uint64_t a,
                           uint64_t b)
{
    struct model_tensor tensor = {.kind = kind, .dimensions = 2, .shape = {a, b}};
    snprintf(tensor.name, sizeof tensor.name, "%s", name);
    return model_add(model, &tensor);
}

static struct model *of_elements(uint64_t elements)
{
    struct model *model = start(1);
    cr_assert_eq(add(model, "w", MODEL_PARAMETER, elements, 1), GRADWEIR_OK);
    cr_assert_eq(model_seal(model), GRADWEIR_OK);
    return model;
}

/* A sealed model of random tensors and groups. */
static struct model *of_seed(uint64_t seed)
{
    struct random random;
    random_init(&random, seed);
    const uint32_t tensors = 1 + (uint32_t)random_below(&random, 30);
    struct model *model = start(tensors);
    const struct model_group frozen = {0.5, MODEL_AS_SET, 0.8, MODEL_AS_SET, true};
    uint32_t group;
    cr_assert_eq(model_group_add(model, &frozen, &group), GRADWEIR_OK);
    for (uint32_t i = 0; i < tensors; i++) {
        struct model_tensor tensor = {.group = (uint32_t)random_below(&random, 2)};
        snprintf(tensor.name, sizeof tensor.name, "layer%u", i);
        tensor.kind = i > 0 && random_below(&random, 4) == 0 ? MODEL_MOMENTS : MODEL_PARAMETER;
        tensor.dimensions = (uint32_t)random_below(&random, 4);
        for (uint32_t d = 0; d < tensor.dimensions; d++)
            tensor.shape[d] = 1 + random_below(&random, tensor.kind == MODEL_MOMENTS ? 5 : 40);
        cr_assert_eq(model_add(model, &tensor), GRADWEIR_OK);
    }
    cr_assert_eq(model_seal(model), GRADWEIR_OK);
    return model;
}

Test(model, shards_tile_the_parameters_exactly_and_differ_by_one_block_at_most)
{
    struct random random;
    random_init(&random, 11);
    for (unsigned round = 0; round < 2000; round++) {
        const uint64_t elements = 1 + (random_next(&random) >> (24 + random_below(&random, 40)));
        struct model *model = of_elements(elements);
        const uint32_t shards = 1 + (uint32_t)random_below(&random, MODEL_SHARDS_MAX);
        uint64_t next = 0, next_block = 0, least = UINT64_MAX, most = 0;
        for (uint32_t i = 0; i < shards; i++) {
            const struct model_range range = model_shard(model, shards, i);
            cr_assert_eq(range.first, next);
            cr_assert_eq(range.first_block, next_block);
            if (range.elements > 0)
                cr_assert_eq(range.first % model->block, 0);
            cr_assert_eq(range.blocks, (range.elements + model->block - 1) / model->block);
            next += range.elements;
            next_block += range.blocks;
            least = range.blocks < least ? range.blocks : least;
            most = range.blocks > most ? range.blocks : most;
        }
        cr_assert_eq(next, elements);
        cr_assert_eq(next_block, model->blocks);
        cr_assert_leq(most - least, 1);
        model_free(model);
    }
}

Test(model, the_block_depends_on_the_layout_and_small_models_can_be_cut)
{
    struct model *small = of_elements(9155); /* the CartPole network */
    cr_assert_eq(small->block, MODEL_BLOCK_MIN);
    const struct model_range half = model_shard(small, 2, 0);
    cr_assert(half.elements > 4400 && half.elements < 4800);
    model_free(small);

    struct model *large = of_elements(UINT64_C(7000000000));
    cr_assert_eq(large->block, MODEL_BLOCK);
    model_free(large);

    struct model *tiny = of_elements(3);
    cr_assert_eq(model_shard(tiny, 2, 0).elements + model_shard(tiny, 2, 1).elements, 3);
    model_free(tiny);
}

Test(model, moments_are_a_section_of_their_own_on_the_last_shard)
{
    struct model *model = start(3);
    add(model, "w", MODEL_PARAMETER, 2, 3);
    add(model, "seen", MODEL_MOMENTS, 4, 1);
    add(model, "b", MODEL_PARAMETER, 5, 1);
    cr_assert_eq(model_seal(model), GRADWEIR_OK);
    cr_assert_eq(model_find(model, "seen")->offset, 0);
    cr_assert_eq(model_find(model, "b")->offset, 6);
    cr_assert_eq(model->elements, 11);
    cr_assert_eq(model->moments, 4);
    cr_assert_eq(model_shard(model, 2, 0).moments, 0);
    cr_assert_eq(model_shard(model, 2, 1).moments, 4);
    model_free(model);
    cr_assert_eq(sizeof(struct moments), 24);
}

Test(model, every_element_finds_its_tensor)
{
    struct model *model = of_seed(5);
    for (uint64_t e = 0; e < model->elements; e++) {
        const struct model_tensor *tensor = model_tensor_at(model, e);
        cr_assert_eq(tensor->kind, MODEL_PARAMETER);
        cr_assert(e >= tensor->offset && e < tensor->offset + tensor->elements);
    }
    cr_assert_null(model_find(model, "nobody"));
    model_free(model);
}

Test(model, bytes_come_back_as_the_same_layout)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct model *model = of_seed(seed);
        const size_t size = model_encoded_bytes(model);
        unsigned char *bytes = malloc(size);
        struct model *back = NULL;
        char text[200];
        cr_assert_eq(model_encode(model, bytes, size), GRADWEIR_OK);
        cr_assert_eq(model_decode(bytes, size, &back), GRADWEIR_OK, "%s", fail_reason());
        cr_assert_eq(model->hash, back->hash);
        cr_assert_eq(model->moments, back->moments);
        cr_assert(!model_difference(model, back, text, sizeof text));
        model_free(back);
        free(bytes);
        model_free(model);
    }
}

Test(model, torn_and_flipped_bytes_are_refused_or_mean_another_valid_layout)
{
    struct model *model = of_seed(3);
    const size_t size = model_encoded_bytes(model);
    unsigned char *bytes = malloc(size);
    struct random random;
    random_init(&random, 9);
    model_encode(model, bytes, size);
    for (size_t cut = 0; cut < size; cut++) {
        /* A copy of its own length, so that a sanitizer sees a read past its end. */
        unsigned char *torn = malloc(cut ? cut : 1);
        struct model *back = NULL;
        memcpy(torn, bytes, cut);
        cr_assert_eq(model_decode(torn, cut, &back), GRADWEIR_ERR_PROTOCOL);
        free(torn);
    }
    for (unsigned i = 0; i < 5000; i++) {
        const size_t at = random_below(&random, size);
        const unsigned char was = bytes[at];
        struct model *back = NULL;
        bytes[at] ^= (unsigned char)(1 + random_below(&random, 255));
        if (model_decode(bytes, size, &back) == GRADWEIR_OK) {
            cr_assert_neq(back->hash, model->hash);
            model_free(back);
        }
        bytes[at] = was;
    }
    free(bytes);
    model_free(model);
}

Test(model, a_promise_of_many_tensors_without_their_bytes_takes_no_memory)
{
    const unsigned char bytes[] = {'G', 'W', 'M', 'L', 1, 0, 1, 0, 0xff, 0xff, 0, 0};
    struct model *model = NULL;
    cr_assert_eq(model_decode(bytes, sizeof bytes, &model), GRADWEIR_ERR_PROTOCOL);
    cr_assert_null(model);
}

Test(model, a_difference_names_the_first_tensor_with_both_shapes)
{
    struct model *ours = start(2), *theirs = start(2);
    char text[200];
    add(ours, "policy.0", MODEL_PARAMETER, 64, 4);
    add(theirs, "policy.0", MODEL_PARAMETER, 64, 6);
    model_seal(ours);
    model_seal(theirs);
    cr_assert_neq(ours->hash, theirs->hash);
    cr_assert(model_difference(ours, theirs, text, sizeof text));
    cr_assert_str_eq(text, "tensor policy.0 is float32 [64, 4] of group 0 here and float32 [64, 6] "
                           "of group 0 there");
    cr_assert(model_difference(ours, theirs, text, 10));
    cr_assert_eq(strlen(text), 9);
    model_free(ours);
    model_free(theirs);
}

Test(model, a_difference_names_missing_tensors_and_groups)
{
    struct model *ours = start(2), *theirs = start(2), *grouped = start(1);
    char text[300];
    add(ours, "a", MODEL_PARAMETER, 1, 1);
    add(theirs, "a", MODEL_PARAMETER, 1, 1);
    add(theirs, "b", MODEL_MOMENTS, 2, 1);
    add(grouped, "a", MODEL_PARAMETER, 1, 1);
    const struct model_group group = {2.0, 0.1, MODEL_AS_SET, MODEL_AS_SET, false};
    cr_assert_eq(model_group_default(grouped, &group), GRADWEIR_OK);
    model_seal(ours);
    model_seal(theirs);
    model_seal(grouped);
    cr_assert(model_difference(ours, theirs, text, sizeof text));
    cr_assert_str_eq(text, "tensor number 1 is missing here and b moments [2, 1] of group 0 there");
    cr_assert(model_difference(ours, grouped, text, sizeof text));
    cr_assert_not_null(strstr(text, "group 0 has learning-rate scale 1"));
    cr_assert_neq(ours->hash, grouped->hash);
    model_free(ours);
    model_free(theirs);
    model_free(grouped);
}

Test(model, refuses_what_cannot_be_a_model)
{
    struct model *model = start(3);
    uint32_t number;
    cr_assert_eq(add(model, "", MODEL_PARAMETER, 1, 1), GRADWEIR_ERR_INVALID);
    cr_assert_eq(add(model, "a\nb", MODEL_PARAMETER, 1, 1), GRADWEIR_ERR_INVALID);
    cr_assert_eq(add(model, "zero", MODEL_PARAMETER, 0, 1), GRADWEIR_ERR_INVALID);
    cr_assert_eq(add(model, "huge", MODEL_PARAMETER, UINT64_MAX, 2), GRADWEIR_ERR_INVALID);
    cr_assert_eq(add(model, "wrap", MODEL_PARAMETER, UINT64_C(1) << 33, UINT64_C(1) << 33),
                 GRADWEIR_ERR_INVALID);
    cr_assert_eq(add(model, "wide", MODEL_MOMENTS, MODEL_MOMENTS_MAX, 2), GRADWEIR_ERR_FULL);
    const struct model_group bad = {.learning_rate_scale = NAN};
    cr_assert_eq(model_group_add(model, &bad, &number), GRADWEIR_ERR_INVALID);
    cr_assert_eq(add(model, "seen", MODEL_MOMENTS, 1, 1), GRADWEIR_OK);
    cr_assert_eq(model_seal(model), GRADWEIR_ERR_INVALID); /* no parameter */
    cr_assert_eq(add(model, "twin", MODEL_PARAMETER, 1, 1), GRADWEIR_OK);
    cr_assert_eq(add(model, "twin", MODEL_PARAMETER, 1, 1), GRADWEIR_OK);
    cr_assert_eq(model_seal(model), GRADWEIR_ERR_INVALID);
    cr_assert_eq(add(model, "fourth", MODEL_PARAMETER, 1, 1), GRADWEIR_ERR_FULL);
    model_free(model);
}
