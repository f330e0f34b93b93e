#include "common/pieces.h"

#include "common/arithmetic_element.h"
#include "common/random.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENTS_MAX = 20000 };

static struct model *model;
static uint64_t body_bytes;
static uint8_t *body; /* of the whole model */

static void add(const char *name, enum model_kind kind, uint32_t dimensions, const uint64_t *shape)
{
    struct model_tensor tensor = {.kind = kind, .dimensions = dimensions};
    strcpy(tensor.name, name);
    memcpy(tensor.shape, shape, dimensions * sizeof *shape);
    cr_assert_eq(model_add(model, &tensor), GRADWEIR_OK);
}

static void start(void)
{
    cr_assert_eq(model_new(8, &model), GRADWEIR_OK);
    add("embed", MODEL_PARAMETER, 2, (const uint64_t[]){37, 24});
    add("cube", MODEL_PARAMETER, 4, (const uint64_t[]){3, 5, 4, 7});
    add("seen", MODEL_MOMENTS, 2, (const uint64_t[]){3, 4});
    add("one", MODEL_PARAMETER, 0, (const uint64_t[]){0});
    add("bias", MODEL_PARAMETER, 1, (const uint64_t[]){300});
    cr_assert_eq(model_seal(model), GRADWEIR_OK);
    body_bytes = model->elements * sizeof(float) + model->moments * sizeof(struct moments);
    body = malloc(body_bytes);
    for (uint64_t i = 0; i < model->elements; i++) {
        const float x = (float)(i + 1) * 1.2345f;
        memcpy(body + i * sizeof x, &x, sizeof x);
    }
    for (uint64_t i = 0; i < model->moments * 3; i++) {
        const double x = (double)i + 0.5;
        memcpy(body + model->elements * sizeof(float) + i * sizeof x, &x, sizeof x);
    }
}

static void end(void)
{
    free(body);
    model_free(model);
}

TestSuite(pieces, .init = start, .fini = end);

/* Every part of every axis, of all tensors, as long as `visit` wants them. */
static void each_box(void (*visit)(const struct part *box))
{
    const struct part all = {.tensor = PIECES_ALL, .count = model->elements};
    visit(&all);
    for (uint32_t t = 0; t < model->tensors_count; t++)
        for (uint32_t axis = 0;
             axis < (model->tensors[t].dimensions | !model->tensors[t].dimensions); axis++) {
            const uint64_t whole = model->tensors[t].dimensions ? model->tensors[t].shape[axis] : 1;
            for (uint64_t first = 0; first < whole; first += 1 + first / 3)
                for (uint64_t count = 1; count <= whole - first; count += 1 + count / 2) {
                    const struct part box = {
                        .tensor = t, .axis = axis, .first = first, .count = count};
                    visit(&box);
                }
        }
}

/* Element by element: whether it is in the box, by its index on the box's axis. */
static bool is_in(const struct model_tensor *tensor, const struct part *box, uint64_t i)
{
    for (uint32_t d = tensor->dimensions; d > box->axis + 1; d--)
        i /= tensor->shape[d - 1];
    const uint64_t index = tensor->dimensions ? i % tensor->shape[box->axis] : 0;
    return index >= box->first && index < box->first + box->count;
}

static uint64_t expect(const struct part *box, bool half, uint8_t *to)
{
    uint64_t bytes = 0;
    const bool all = box->tensor == PIECES_ALL;
    const struct model_tensor *tensor = all ? NULL : &model->tensors[box->tensor];
    const bool floats = all || tensor->kind == MODEL_PARAMETER;
    const uint64_t unit = floats ? sizeof(float) : sizeof(struct moments);
    const uint64_t begin = all      ? 0
                           : floats ? tensor->offset * unit
                                    : model->elements * sizeof(float) + tensor->offset * unit;
    for (uint64_t i = 0; i < (all ? model->elements : tensor->elements); i++) {
        float x;
        if (!all && !is_in(tensor, box, i))
            continue;
        memcpy(to + bytes, body + begin + i * unit, unit);
        memcpy(&x, to + bytes, sizeof x);
        const uint16_t rounded = element_to_bf16(x);
        if (floats && half)
            memcpy(to + bytes, &rounded, sizeof rounded);
        bytes += floats && half ? sizeof rounded : unit;
    }
    return bytes;
}

/* What a shard gathers of a box, in bodies of an odd size, goes where `before` says. */
static void gather(const struct part *box, uint32_t shards, bool half, uint8_t *to)
{
    for (uint32_t s = 0; s < shards; s++) {
        const struct model_range shard = model_shard(model, shards, s);
        const struct piece_range range = {shard.first, shard.elements, shard.moments};
        uint8_t part[ELEMENTS_MAX * 4];
        struct piece piece;
        uint64_t before;
        memcpy(part, body + range.first * sizeof(float), range.elements * sizeof(float));
        memcpy(part + range.elements * sizeof(float), body + model->elements * sizeof(float),
               range.moments * sizeof(struct moments));
        if (!piece_of(box, model, &range, &piece, &before))
            continue;
        cr_assert(pieces_sound(&piece, 1, &range, piece.length));
        const bool halves = half && piece_is_floats(&piece, &range);
        cr_assert_eq(piece_wire(&piece, &range, half), halves ? piece.length / 2 : piece.length);
        for (uint64_t at = 0, n; at < piece.length; at += n) {
            n = piece.length - at < 52 ? piece.length - at : 52;
            if (halves)
                piece_gather_half(&piece, part, at, n, to + (before + at) / 2);
            else
                piece_gather(&piece, part, at, n, to + before + at);
        }
    }
}

static void compare(const struct part *box)
{
    static uint8_t wanted[ELEMENTS_MAX * 4], got[ELEMENTS_MAX * 4];
    cr_assert_eq(box_check(box, model), GRADWEIR_OK);
    for (uint32_t shards = 1; shards <= 5; shards += 2)
        for (uint32_t half = 0; half < 2; half++) {
            const uint64_t bytes = expect(box, half, wanted);
            cr_assert_eq(box_bytes(box, model, half), bytes);
            memset(got, 0, sizeof got);
            gather(box, shards, half, got);
            cr_assert_eq(memcmp(got, wanted, bytes), 0,
                         "tensor %u axis %u: %llu from %llu, %u shards", box->tensor, box->axis,
                         (unsigned long long)box->count, (unsigned long long)box->first, shards);
        }
}

Test(pieces, of_all_shards_put_in_their_places_are_the_box)
{
    each_box(compare);
}

static bool refused(struct part box, const char *text)
{
    return box_check(&box, model) == GRADWEIR_ERR_INVALID && strstr(fail_reason(), text);
}

Test(pieces, a_box_out_of_the_tensor_is_refused_and_told_what_is_allowed)
{
    cr_assert(refused((struct part){.tensor = 5, .count = 1}, "there are 5"));
    cr_assert(
        refused((struct part){.tensor = 0, .axis = 2, .count = 1}, "embed: it has axes 0 to 1"));
    cr_assert(refused((struct part){.tensor = 0, .axis = 1, .first = 24, .count = 1}, "it has 24"));
    cr_assert(refused((struct part){.tensor = 0, .axis = 0, .first = 30, .count = 8}, "it has 37"));
    cr_assert(refused((struct part){.tensor = 0, .axis = 0, .count = 0}, "at least 1"));
    cr_assert(refused((struct part){.tensor = 0, .first = 1, .count = UINT64_MAX}, "it has 37"));
    cr_assert(
        refused((struct part){.tensor = 3, .axis = 1, .count = 1}, "one: it has axes 0 to 0"));
}

Test(pieces, boxes_meet_when_they_share_an_element)
{
    const struct part rows = {.tensor = 0, .axis = 0, .first = 3, .count = 4};
    cr_assert(box_meets(&rows, &(struct part){.tensor = 0, .axis = 0, .first = 6, .count = 1}));
    cr_assert(!box_meets(&rows, &(struct part){.tensor = 0, .axis = 0, .first = 7, .count = 1}));
    cr_assert(!box_meets(&rows, &(struct part){.tensor = 0, .axis = 0, .first = 0, .count = 3}));
    cr_assert(box_meets(&rows, &(struct part){.tensor = 0, .axis = 1, .first = 0, .count = 1}));
    cr_assert(!box_meets(&rows, &(struct part){.tensor = 1, .axis = 0, .first = 3, .count = 4}));
}

/* Whatever is taken for sound lies inside the range, and inside one section of it, to the last
 * byte. */
Test(pieces, what_is_sound_never_leads_out_of_the_range)
{
    const struct piece_range range = {.first = 64, .elements = 1000, .moments = 6};
    const uint64_t floats = 4000, all = 4000 + 144;
    struct random random;
    uint64_t sound = 0;
    random_init(&random, 1);
    for (uint32_t i = 0; i < 300000; i++) {
        uint64_t words[5];
        for (uint32_t k = 0; k < 5; k++) {
            words[k] = random_below(&random, i % 3 ? 300 : 5000) * (i % 7 ? 4 : 1);
            if (random_below(&random, 40) == 0)
                words[k] = random_next(&random) & ~UINT64_C(3);
        }
        const struct piece piece = {words[0], words[1], words[2], words[3], words[4]};
        if (!pieces_sound(&piece, 1, &range, piece.length))
            continue;
        sound++;
        const uint64_t low = piece.offset < floats ? 0 : floats;
        const uint64_t high = piece.offset < floats ? floats : all;
        uint64_t row, count = 0;
        for (uint64_t at = 0; at < piece.length; at += row) {
            const uint64_t from = piece_find(&piece, at, &row);
            cr_assert(row > 0 && from >= low && from < high && row <= high - from);
            count += row;
        }
        cr_assert_eq(count, piece.length);
    }
    cr_assert_gt(sound, 1000);
}

Test(pieces, a_list_has_so_many_and_so_many_bytes_and_no_more_than_the_range)
{
    const struct piece_range range = {.elements = 1000};
    static struct piece list[PIECES_MAX + 1];
    for (uint32_t i = 0; i <= PIECES_MAX; i++)
        list[i] = (struct piece){.length = 4, .lead = 4, .width = 4, .period = 4};
    cr_assert(pieces_sound(list, 1000, &range, 4000));
    cr_assert(!pieces_sound(list, 1001, &range, 4004));
    cr_assert(!pieces_sound(list, 999, &range, 4000));
    cr_assert(!pieces_sound(list, 0, &range, 0));
    const struct piece_range large = {.elements = 1 << 20};
    cr_assert(pieces_sound(list, PIECES_MAX, &large, 4 * PIECES_MAX));
    cr_assert(!pieces_sound(list, PIECES_MAX + 1, &large, 4 * (PIECES_MAX + 1)));
}

/* Sizes of a model of 2^40 parameters: nothing wraps at 2^31 or 2^32, in elements or in bytes. */
Test(pieces, of_a_huge_tensor_are_where_they_are)
{
    struct model *huge;
    struct model_tensor tensor = {
        .name = "w", .dimensions = 2, .shape = {UINT64_C(1) << 24, (UINT64_C(1) << 16) - 3}};
    cr_assert_eq(model_new(1, &huge), GRADWEIR_OK);
    cr_assert_eq(model_add(huge, &tensor), GRADWEIR_OK);
    cr_assert_eq(model_seal(huge), GRADWEIR_OK);
    const uint64_t columns = tensor.shape[1], row = (UINT64_C(1) << 23) + 5;
    const struct piece_range range = {.first = UINT64_C(1) << 36, .elements = UINT64_C(1) << 39};
    const struct part rows = {.axis = 0, .first = row, .count = 2};
    const struct part column = {.axis = 1, .first = 7, .count = 3};
    struct piece piece;
    uint64_t before, in_row;
    cr_assert(piece_of(&rows, huge, &range, &piece, &before));
    cr_assert(before == 0 && piece.length == 2 * columns * 4 && piece.lead == piece.length);
    cr_assert_eq(piece.offset, (row * columns - range.first) * 4);
    cr_assert(piece_of(&column, huge, &range, &piece, &before));
    cr_assert(pieces_sound(&piece, 1, &range, piece.length));
    const uint64_t first_row = before / 12, at = (row - first_row) * 12 - before % 12;
    cr_assert_eq(piece_find(&piece, at, &in_row), (row * columns + 7 - range.first) * 4);
    cr_assert_eq(in_row, 12);
    model_free(huge);
}
