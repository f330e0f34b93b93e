/* Who holds what of a gradient. */
#include "common/parts.h"

#include "common/checksum.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(struct part) == 24, "parts travel as they lie in memory");

enum { PARTS_MAGIC = 0x54505747, HEAD_WORDS = 4, NAMED_MAX = 400 };

struct parts *parts_new(uint32_t rank, uint32_t ranks, uint32_t count)
{
    struct parts *parts = calloc(1, sizeof *parts + count * sizeof *parts->items);
    if (parts) {
        parts->rank = rank;
        parts->ranks = ranks;
        parts->count = count;
    }
    return parts;
}

static uint64_t extent(const struct model_tensor *tensor, uint32_t axis)
{
    return tensor->dimensions == 0 ? 1 : tensor->shape[axis];
}

gradweir_status parts_check(const struct parts *parts, const struct model *model)
{
    if (parts->ranks < 1 || parts->ranks > RANKS_MAX || parts->rank >= parts->ranks)
        return fail(GRADWEIR_ERR_INVALID, "rank %u of %u: 1 to %d ranks, counted from 0",
                    parts->rank, parts->ranks, RANKS_MAX);
    for (uint32_t i = 0; i < parts->count; i++) {
        const struct part *part = &parts->items[i];
        if (part->tensor >= model->tensors_count ||
            (i > 0 && part->tensor <= parts->items[i - 1].tensor))
            return fail(GRADWEIR_ERR_INVALID,
                        "rank %u: part %u is of tensor %u: there are %u, each once and in order",
                        parts->rank, i, part->tensor, model->tensors_count);
        const struct model_tensor *tensor = &model->tensors[part->tensor];
        const uint32_t axes = tensor->dimensions ? tensor->dimensions : 1;
        if (tensor->kind != MODEL_PARAMETER || part->axis >= axes)
            return fail(GRADWEIR_ERR_INVALID, "rank %u: tensor %s has no axis %u to cut",
                        parts->rank, tensor->name, part->axis);
        const uint64_t whole = extent(tensor, part->axis);
        if (part->count == 0 || part->first >= whole || part->count > whole - part->first)
            return fail(GRADWEIR_ERR_INVALID,
                        "rank %u: tensor %s has %llu on axis %u, the part is %llu of them from "
                        "%llu on",
                        parts->rank, tensor->name, (unsigned long long)whole, part->axis,
                        (unsigned long long)part->count, (unsigned long long)part->first);
    }
    return GRADWEIR_OK;
}

/* What does not tile, sentence behind sentence. */
struct faults {
    char text[NAMED_MAX];
    size_t used;
    uint32_t count;
};

static void fault(struct faults *faults, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void fault(struct faults *faults, const char *format, ...)
{
    va_list arguments;
    const size_t room = sizeof faults->text - faults->used;
    faults->count++;
    va_start(arguments, format);
    const int wrote = vsnprintf(faults->text + faults->used, room, format, arguments);
    va_end(arguments);
    if (wrote < 0 || (size_t)wrote >= room)
        faults->text[faults->used] = 0; /* only whole sentences */
    else
        faults->used += (size_t)wrote;
}

/* One rank's part of the tensor that is looked at. */
struct holder {
    uint32_t rank;
    struct part part;
};

static int by_first(const void *a, const void *b)
{
    const struct holder *left = a, *right = b;
    if (left->part.first != right->part.first)
        return left->part.first < right->part.first ? -1 : 1;
    return (left->rank > right->rank) - (left->rank < right->rank);
}

static void gap(struct faults *faults, const struct model_tensor *tensor, uint32_t axis,
                uint64_t from, uint64_t to)
{
    fault(faults, "; no rank has %llu to %llu of axis %u of tensor %s", (unsigned long long)from,
          (unsigned long long)to - 1, axis, tensor->name);
}

static void tile_tensor(struct faults *faults, const struct model_tensor *tensor,
                        struct holder *holders, uint32_t count)
{
    uint64_t next = 0;
    if (count == 0) {
        fault(faults, "; no rank has tensor %s", tensor->name);
        return;
    }
    qsort(holders, count, sizeof *holders, by_first);
    for (uint32_t i = 0; i < count; i++) {
        const struct part *part = &holders[i].part;
        if (part->axis != holders[0].part.axis) { /* slabs of two axes always cross */
            fault(faults, "; ranks %u and %u cross in tensor %s: it is cut on axes %u and %u",
                  holders[0].rank, holders[i].rank, tensor->name, holders[0].part.axis, part->axis);
            return;
        }
        if (part->first > next)
            gap(faults, tensor, part->axis, next, part->first);
        if (part->first < next) {
            const uint64_t end = part->first + part->count;
            fault(faults, "; ranks %u and %u both have %llu to %llu of axis %u of tensor %s",
                  holders[i - 1].rank, holders[i].rank, (unsigned long long)part->first,
                  (unsigned long long)(end < next ? end : next) - 1, part->axis, tensor->name);
        }
        if (part->first + part->count > next)
            next = part->first + part->count;
    }
    if (next < extent(tensor, holders[0].part.axis))
        gap(faults, tensor, holders[0].part.axis, next, extent(tensor, holders[0].part.axis));
}

gradweir_status parts_tile(const struct parts *const *ranks, uint32_t count,
                           const struct model *model)
{
    struct faults faults = {.used = 0};
    uint32_t at[RANKS_MAX] = {0};
    for (uint32_t t = 0; t < model->tensors_count; t++) {
        struct holder holders[RANKS_MAX];
        uint32_t n = 0;
        for (uint32_t r = 0; r < count; r++)
            if (at[r] < ranks[r]->count && ranks[r]->items[at[r]].tensor == t)
                holders[n++] = (struct holder){.rank = r, .part = ranks[r]->items[at[r]++]};
        if (model->tensors[t].kind == MODEL_PARAMETER)
            tile_tensor(&faults, &model->tensors[t], holders, n);
    }
    if (faults.count == 0)
        return GRADWEIR_OK;
    return fail(GRADWEIR_ERR_MISMATCH, "the parts do not tile the model (%u faults)%s",
                faults.count, faults.text);
}

struct part_runs part_runs(const struct part *part, const struct model_tensor *tensor)
{
    uint64_t inner = 1;
    for (uint32_t d = part->axis + 1; d < tensor->dimensions; d++)
        inner *= tensor->shape[d];
    const uint64_t period = extent(tensor, part->axis) * inner;
    return (struct part_runs){.first = part->first * inner,
                              .width = part->count * inner,
                              .period = period,
                              .runs = tensor->elements / period};
}

/* The first part whose tensor ends behind `from`. */
static uint32_t find(const struct parts *parts, const struct model *model, uint64_t from)
{
    uint32_t low = 0, high = parts->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const struct model_tensor *tensor = &model->tensors[parts->items[middle].tensor];
        if (tensor->offset + tensor->elements <= from)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool one_run(const struct parts *parts, const struct model *model, uint64_t from,
                    uint64_t *begin, uint64_t *end)
{
    for (uint32_t i = find(parts, model, from); i < parts->count; i++) {
        const struct model_tensor *tensor = &model->tensors[parts->items[i].tensor];
        const struct part_runs runs = part_runs(&parts->items[i], tensor);
        const uint64_t local = from > tensor->offset ? from - tensor->offset : 0;
        uint64_t row = local / runs.period;
        if (local % runs.period >= runs.first + runs.width)
            row++;
        if (row >= runs.runs)
            continue;
        const uint64_t start = row * runs.period + runs.first;
        *begin = tensor->offset + (local > start ? local : start);
        *end = tensor->offset + start + runs.width;
        return true;
    }
    return false;
}

bool parts_run(const struct parts *parts, const struct model *model, uint64_t from, uint64_t enough,
               uint64_t *begin, uint64_t *end)
{
    uint64_t next, next_end;
    if (!one_run(parts, model, from, begin, end))
        return false;
    while (*end - *begin < enough && one_run(parts, model, *end, &next, &next_end) && next == *end)
        *end = next_end;
    return true;
}

size_t parts_bytes(const struct parts *parts)
{
    return HEAD_WORDS * sizeof(uint32_t) + parts->count * sizeof(struct part);
}

void parts_encode(const struct parts *parts, uint8_t *bytes)
{
    const uint32_t head[HEAD_WORDS] = {PARTS_MAGIC, parts->rank, parts->ranks, parts->count};
    memcpy(bytes, head, sizeof head);
    memcpy(bytes + sizeof head, parts->items, parts->count * sizeof(struct part));
}

gradweir_status parts_decode(const uint8_t *bytes, size_t size, struct parts **parts)
{
    uint32_t head[HEAD_WORDS];
    if (size < sizeof head)
        return fail(GRADWEIR_ERR_PROTOCOL, "%zu bytes are no parts", size);
    memcpy(head, bytes, sizeof head);
    if (head[0] != PARTS_MAGIC || (size - sizeof head) / sizeof(struct part) != head[3] ||
        (size - sizeof head) % sizeof(struct part) || head[2] > RANKS_MAX)
        return fail(GRADWEIR_ERR_PROTOCOL, "%zu bytes are no parts", size);
    *parts = parts_new(head[1], head[2], head[3]);
    if (!*parts)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for %u parts", head[3]);
    memcpy((*parts)->items, bytes + sizeof head, size - sizeof head);
    return GRADWEIR_OK;
}

uint64_t parts_digest(const uint64_t *digests, uint32_t ranks)
{
    return checksum_hash64(0, digests, ranks * sizeof *digests);
}
