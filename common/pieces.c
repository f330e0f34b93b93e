/* Boxes of tensors as bytes of a shard's range. */
#include "common/pieces.h"

#include "common/arithmetic.h"

#include <assert.h>
#include <string.h>

static_assert(sizeof(struct piece) == 40, "pieces travel as they lie in memory");

/* All parameters are one long vector. */
static struct model_tensor tensor_of(const struct part *box, const struct model *model)
{
    if (box->tensor != PIECES_ALL)
        return model->tensors[box->tensor];
    return (struct model_tensor){.kind = MODEL_PARAMETER,
                                 .dimensions = 1,
                                 .shape = {model->elements},
                                 .elements = model->elements};
}

static uint64_t unit_of(const struct model_tensor *tensor)
{
    return tensor->kind == MODEL_PARAMETER ? sizeof(float) : sizeof(struct moments);
}

gradweir_status box_check(const struct part *box, const struct model *model)
{
    if (box->tensor != PIECES_ALL && box->tensor >= model->tensors_count)
        return fail(GRADWEIR_ERR_INVALID, "a box of tensor %u: there are %u", box->tensor,
                    model->tensors_count);
    const struct model_tensor tensor = tensor_of(box, model);
    const uint32_t axes = tensor.dimensions ? tensor.dimensions : 1;
    if (box->axis >= axes)
        return fail(GRADWEIR_ERR_INVALID, "a box of axis %u of tensor %s: it has axes 0 to %u",
                    box->axis, tensor.name, axes - 1);
    const uint64_t whole = tensor.dimensions ? tensor.shape[box->axis] : 1;
    if (box->count == 0 || box->first >= whole || box->count > whole - box->first)
        return fail(GRADWEIR_ERR_INVALID,
                    "a box of %llu from %llu on of axis %u of tensor %s: it has %llu there, and a "
                    "box has at least 1",
                    (unsigned long long)box->count, (unsigned long long)box->first, box->axis,
                    tensor.name, (unsigned long long)whole);
    return GRADWEIR_OK;
}

bool box_meets(const struct part *a, const struct part *b)
{
    if (a->tensor != b->tensor)
        return false;
    return a->axis != b->axis || /* slabs of two axes always cross */
           (a->first < b->first + b->count && b->first < a->first + a->count);
}

uint64_t box_elements(const struct part *box, const struct model *model)
{
    const struct model_tensor tensor = tensor_of(box, model);
    const struct part_runs runs = part_runs(box, &tensor);
    return runs.width * runs.runs;
}

uint64_t box_bytes(const struct part *box, const struct model *model, bool half)
{
    const struct model_tensor tensor = tensor_of(box, model);
    const uint64_t bytes = box_elements(box, model) * unit_of(&tensor);
    return half && tensor.kind == MODEL_PARAMETER ? bytes / 2 : bytes;
}

/* Elements of the box before element `at` of its tensor. */
static uint64_t count_before(const struct part_runs *runs, uint64_t at)
{
    const uint64_t column = at % runs->period;
    const uint64_t in_run = column > runs->first ? column - runs->first : 0;
    return at / runs->period * runs->width + (in_run < runs->width ? in_run : runs->width);
}

bool piece_of(const struct part *box, const struct model *model, const struct piece_range *range,
              struct piece *piece, uint64_t *before)
{
    const struct model_tensor tensor = tensor_of(box, model);
    const struct part_runs runs = part_runs(box, &tensor);
    const bool floats = tensor.kind == MODEL_PARAMETER;
    const uint64_t low = floats ? range->first : 0, unit = unit_of(&tensor);
    const uint64_t high = low + (floats ? range->elements : range->moments);
    const uint64_t from = low > tensor.offset ? low - tensor.offset : 0;
    uint64_t to = high > tensor.offset ? high - tensor.offset : 0;
    to = to < tensor.elements ? to : tensor.elements;
    if (from >= to)
        return false;
    const uint64_t first = count_before(&runs, from), count = count_before(&runs, to) - first;
    if (count == 0)
        return false;
    const uint64_t column = first % runs.width;
    const uint64_t start =
        tensor.offset + first / runs.width * runs.period + runs.first + column - low;
    const bool one = runs.width == runs.period || count <= runs.width - column;
    const uint64_t section = floats ? 0 : range->elements * sizeof(float);
    *piece = (struct piece){.offset = section + start * unit,
                            .length = count * unit,
                            .lead = (one ? count : runs.width - column) * unit,
                            .width = (one ? count : runs.width) * unit,
                            .period = (one ? count : runs.period) * unit};
    *before = first * unit;
    return true;
}

bool piece_is_floats(const struct piece *piece, const struct piece_range *range)
{
    return piece->offset < range->elements * sizeof(float);
}

uint64_t piece_wire(const struct piece *piece, const struct piece_range *range, bool half)
{
    return half && piece_is_floats(piece, range) ? piece->length / 2 : piece->length;
}

/* Every product is bounded before it is made: the range has far less than 2^63 bytes. */
static bool is_sound(const struct piece *piece, const struct piece_range *range)
{
    const uint64_t floats = range->elements * sizeof(float);
    const uint64_t all = floats + range->moments * sizeof(struct moments);
    const uint64_t end = piece->offset < floats ? floats : all;
    if (piece->offset >= all || piece->length == 0 || piece->lead == 0 ||
        piece->lead > piece->length || piece->lead > piece->width || piece->width > piece->period ||
        piece->period > all || piece->length > all)
        return false;
    const uint64_t together = piece->offset | piece->length | piece->lead | piece->width;
    if ((together | piece->period) % sizeof(float))
        return false;
    const uint64_t rest = piece->length - piece->lead, room = end - piece->offset;
    const uint64_t runs = rest / piece->width + (rest % piece->width != 0);
    if (runs > room / piece->period + 1)
        return false;
    return piece->length + runs * (piece->period - piece->width) <= room;
}

bool pieces_sound(const struct piece *pieces, uint32_t count, const struct piece_range *range,
                  uint64_t total)
{
    const uint64_t all = range->elements * sizeof(float) + range->moments * sizeof(struct moments);
    uint64_t sum = 0;
    if (count == 0 || count > PIECES_MAX)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_sound(&pieces[i], range) || pieces[i].length > all - sum)
            return false;
        sum += pieces[i].length;
    }
    return sum == total;
}

uint64_t piece_find(const struct piece *piece, uint64_t at, uint64_t *row)
{
    if (at < piece->lead) {
        *row = piece->lead - at;
        return piece->offset + at;
    }
    const uint64_t behind = at - piece->lead;
    const uint64_t run = behind / piece->width, column = behind % piece->width;
    const uint64_t in_run = piece->width - column, rest = piece->length - at;
    *row = in_run < rest ? in_run : rest;
    return piece->offset + piece->lead + (run + 1) * (piece->period - piece->width) +
           run * piece->width + column;
}

void piece_gather(const struct piece *piece, const void *body, uint64_t at, uint64_t length,
                  void *to)
{
    uint8_t *next = to;
    while (length) {
        uint64_t row;
        const uint64_t from = piece_find(piece, at, &row);
        row = row < length ? row : length;
        memcpy(next, (const uint8_t *)body + from, (size_t)row);
        next += row;
        at += row;
        length -= row;
    }
}

void piece_gather_half(const struct piece *piece, const void *body, uint64_t at, uint64_t length,
                       void *to)
{
    const struct arithmetic *arithmetic = arithmetic_choose(NULL);
    uint8_t *next = to;
    while (length) {
        uint64_t row;
        const uint64_t from = piece_find(piece, at, &row);
        row = row < length ? row : length;
        const void *floats = (const uint8_t *)body + from;
        arithmetic->encode(ARITHMETIC_BF16, 1.0f, floats, (size_t)(row / sizeof(float)), next);
        next += row / 2;
        at += row;
        length -= row;
    }
}
