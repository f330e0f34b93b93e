#include "common/parts.h"
#include "common/random.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct model *model;

static void start(void)
{
    const struct model_tensor tensors[] = {
        {.name = "scale"}, /* a scalar */
        {.name = "a", .dimensions = 2, .shape = {6, 4}},
        {.name = "seen", .kind = MODEL_MOMENTS, .dimensions = 1, .shape = {3}},
        {.name = "b", .dimensions = 3, .shape = {3, 5, 2}},
        {.name = "c", .dimensions = 1, .shape = {9}}};
    cr_assert_eq(model_new(5, &model), GRADWEIR_OK);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(model_add(model, &tensors[i]), GRADWEIR_OK);
    cr_assert_eq(model_seal(model), GRADWEIR_OK);
}

static void end(void)
{
    model_free(model);
}

TestSuite(parts, .init = start, .fini = end);

static struct parts *rank_of(uint32_t rank, uint32_t ranks, const struct part *items,
                             uint32_t count)
{
    struct parts *parts = parts_new(rank, ranks, count);
    cr_assert_not_null(parts);
    memcpy(parts->items, items, count * sizeof *items);
    return parts;
}

static gradweir_status tile(const struct part *zero, uint32_t zeros, const struct part *one,
                            uint32_t ones)
{
    struct parts *ranks[2] = {rank_of(0, 2, zero, zeros), rank_of(1, 2, one, ones)};
    cr_assert_eq(parts_check(ranks[0], model), GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(parts_check(ranks[1], model), GRADWEIR_OK, "%s", fail_reason());
    const struct parts *both[2] = {ranks[0], ranks[1]};
    const gradweir_status status = parts_tile(both, 2, model);
    free(ranks[0]);
    free(ranks[1]);
    return status;
}

Test(parts, rows_columns_and_whole_tensors_tile)
{
    const struct part zero[] = {{0, 0, 0, 1}, {1, 0, 0, 2}, {3, 1, 3, 2}};
    const struct part one[] = {{1, 0, 2, 4}, {3, 1, 0, 3}, {4, 0, 0, 9}};
    cr_assert_eq(tile(zero, 3, one, 3), GRADWEIR_OK, "%s", fail_reason());
}

static void refused(const struct part *zero, uint32_t zeros, const struct part *one, uint32_t ones,
                    const char *text)
{
    cr_assert_eq(tile(zero, zeros, one, ones), GRADWEIR_ERR_MISMATCH);
    cr_assert(strstr(fail_reason(), text), "%s", fail_reason());
}

Test(parts, gaps_and_overlaps_are_named_by_tensor_index_and_rank)
{
    const struct part most[] = {{0, 0, 0, 1}, {1, 0, 0, 6}, {4, 0, 0, 9}};
    const struct part gap[] = {{3, 1, 1, 2}};
    refused(most, 3, gap, 1, "no rank has 0 to 0 of axis 1 of tensor b");
    refused(most, 3, gap, 1, "no rank has 3 to 4 of axis 1 of tensor b");
    refused(most, 3, most, 0, "no rank has tensor b");
    const struct part twice[] = {{1, 0, 2, 2}, {3, 0, 0, 3}};
    refused(most, 3, twice, 2, "ranks 0 and 1 both have 2 to 3 of axis 0 of tensor a");
    const struct part left[] = {{0, 0, 0, 1}, {1, 0, 0, 3}, {3, 0, 0, 3}, {4, 0, 0, 9}};
    const struct part cross[] = {{1, 1, 0, 4}};
    refused(left, 4, cross, 1, "cross in tensor a: it is cut on axes");
}

static void bad(struct part first, struct part second, const char *text)
{
    const struct part items[2] = {first, second};
    struct parts *parts = rank_of(1, 2, items, 2);
    cr_assert_eq(parts_check(parts, model), GRADWEIR_ERR_INVALID);
    cr_assert(strstr(fail_reason(), text), "%s", fail_reason());
    free(parts);
}

Test(parts, a_part_out_of_range_is_named)
{
    const struct part fine = {0, 0, 0, 1};
    bad(fine, (struct part){1, 0, 5, 2}, "rank 1: tensor a has 6 on axis 0");
    bad(fine, (struct part){1, 0, UINT64_MAX, 2}, "tensor a has 6 on axis 0");
    bad(fine, (struct part){1, 1, 3, UINT64_MAX}, "tensor a has 4 on axis 1");
    bad(fine, (struct part){1, 0, 0, 0}, "tensor a has 6 on axis 0");
    bad(fine, (struct part){1, 2, 0, 1}, "tensor a has no axis 2");
    bad(fine, (struct part){2, 0, 0, 3}, "tensor seen has no axis");
    bad(fine, (struct part){5, 0, 0, 3}, "of tensor 5: there are 5");
    bad((struct part){1, 0, 0, 1}, fine, "of tensor 0: there are 5, each once and in order");
    bad(fine, fine, "each once and in order");
}

/* Which rank has an element, the slow way. */
static bool has(const struct parts *parts, uint64_t element)
{
    const struct model_tensor *tensor = model_tensor_at(model, element);
    for (uint32_t i = 0; i < parts->count; i++) {
        const struct part *part = &parts->items[i];
        if (&model->tensors[part->tensor] != tensor)
            continue;
        uint64_t index = element - tensor->offset;
        for (uint32_t d = tensor->dimensions; d-- > part->axis + 1;)
            index /= tensor->shape[d];
        index = tensor->dimensions ? index % tensor->shape[part->axis] : 0;
        return index >= part->first && index < part->first + part->count;
    }
    return false;
}

static uint32_t random_parts(struct random *random, struct part *items)
{
    uint32_t count = 0;
    for (uint32_t t = 0; t < model->tensors_count; t++) {
        const struct model_tensor *tensor = &model->tensors[t];
        if (tensor->kind != MODEL_PARAMETER || random_below(random, 4) == 0)
            continue;
        const uint32_t axis =
            tensor->dimensions ? (uint32_t)random_below(random, tensor->dimensions) : 0;
        const uint64_t whole = tensor->dimensions ? tensor->shape[axis] : 1;
        const uint64_t first = random_below(random, whole);
        items[count++] = (struct part){t, axis, first, 1 + random_below(random, whole - first)};
    }
    return count;
}

Test(parts, runs_are_exactly_the_elements_of_the_parts)
{
    struct random random;
    random_init(&random, 11);
    for (int turn = 0; turn < 2000; turn++) {
        struct part items[5];
        const uint32_t count = random_parts(&random, items);
        struct parts *parts = rank_of(0, 2, items, count);
        const uint64_t enough = random_below(&random, 3) ? 1 + random_below(&random, 30) : 1000;
        uint64_t next = 0, begin, finish;
        while (parts_run(parts, model, next, enough, &begin, &finish)) {
            cr_assert(begin >= next && finish > begin && finish <= model->elements);
            for (uint64_t e = next; e < begin; e++)
                cr_assert_not(has(parts, e));
            for (uint64_t e = begin; e < finish; e++)
                cr_assert(has(parts, e));
            cr_assert(finish - begin >= enough || finish == model->elements || !has(parts, finish));
            next = finish;
        }
        for (uint64_t e = next; e < model->elements; e++)
            cr_assert_not(has(parts, e));
        free(parts);
    }
}

Test(parts, bytes_survive_and_broken_ones_are_refused)
{
    const struct part items[] = {{0, 0, 0, 1}, {3, 1, 3, 2}};
    struct parts *parts = rank_of(1, 3, items, 2), *again;
    uint8_t bytes[100] = {0};
    cr_assert_eq(parts_bytes(parts), 64);
    parts_encode(parts, bytes);
    cr_assert_eq(parts_decode(bytes, 64, &again), GRADWEIR_OK);
    cr_assert(again->rank == 1 && again->ranks == 3 && again->count == 2);
    cr_assert_arr_eq(again->items, items, sizeof items);
    free(again);
    for (size_t size = 0; size < sizeof bytes; size++)
        if (size != 64)
            cr_assert_eq(parts_decode(bytes, size, &again), GRADWEIR_ERR_PROTOCOL, "%zu", size);
    bytes[0] ^= 1;
    cr_assert_eq(parts_decode(bytes, 64, &again), GRADWEIR_ERR_PROTOCOL);
    free(parts);
}

Test(parts, a_digest_depends_on_who_has_what_and_not_on_who_came_first)
{
    const uint64_t digests[2] = {5, 7}, swapped[2] = {7, 5};
    cr_assert_eq(parts_digest(digests, 2), parts_digest(digests, 2));
    cr_assert_neq(parts_digest(digests, 2), parts_digest(swapped, 2));
}
