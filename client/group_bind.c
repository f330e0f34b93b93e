/* A group's tensors as one flat array, which is cut among the present ranks, row by row, into
 * nearly equal parts; and the worker that these ranks are. */
#include "client/group_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t extent(const struct group_tensor *tensor, uint32_t axis)
{
    return tensor->tensor.dimensions ? tensor->tensor.shape[axis] : 1;
}

uint64_t group_rest(const struct group_tensor *tensor, uint32_t axis)
{
    uint64_t rest = 1;
    for (uint32_t d = axis + 1; d < tensor->tensor.dimensions; d++)
        rest *= tensor->tensor.shape[d];
    return rest;
}

/* The axis whose slabs lie end to end: the first that is more than one long. */
static uint32_t row_axis(const struct group_tensor *tensor)
{
    uint32_t axis = 0;
    while (axis + 1 < tensor->tensor.dimensions && tensor->tensor.shape[axis] == 1)
        axis++;
    return axis;
}

static bool is_cut(const struct group_tensor *tensor)
{
    return tensor->tensor.kind == GRADWEIR_PARAMETER && !tensor->own;
}

void group_spread(const struct group_tensor *tensor, const struct group_part *part,
                  const float *from, float *to)
{
    const uint64_t rest = group_rest(tensor, part->axis);
    const uint64_t width = part->count * rest, period = extent(tensor, part->axis) * rest;
    for (uint64_t at = 0; width > 0 && at < tensor->elements; at += period, from += width)
        memcpy(to + at + part->first * rest, from, width * sizeof *to);
}

/* ---- What is bound. ---- */

static gradweir_status measure(struct group_tensor *tensor)
{
    uint64_t elements = 1;
    for (uint32_t d = 0; d < tensor->tensor.dimensions; d++)
        if (__builtin_mul_overflow(elements, tensor->tensor.shape[d], &elements) ||
            elements > UINT64_MAX / 64)
            return fail(GRADWEIR_ERR_INVALID, "tensor %s is too large", tensor->name);
    tensor->elements = elements;
    return GRADWEIR_OK;
}

static gradweir_status take_tensor(struct gradweir_ranks *group, size_t i,
                                   const gradweir_tensor *given)
{
    struct group_tensor *tensor = &group->tensors[i];
    tensor->tensor = *given;
    TRY(client_given(given->name, "a tensor's name"));
    TRY(client_copy_text(tensor->name, sizeof tensor->name, given->name, "a tensor's name"));
    tensor->tensor.name = tensor->name;
    if (given->dimensions > 8)
        return fail(GRADWEIR_ERR_INVALID, "tensor %s has %u dimensions: at most 8", tensor->name,
                    given->dimensions);
    return measure(tensor);
}

static gradweir_status take_parts(struct gradweir_ranks *group)
{
    for (size_t k = 0; k < group->said_count; k++) {
        const struct group_said *said = &group->said[k];
        if (said->tensor >= group->tensors_count)
            return fail(GRADWEIR_ERR_INVALID, "a part of tensor %zu: %zu are bound", said->tensor,
                        group->tensors_count);
        struct group_tensor *tensor = &group->tensors[said->tensor];
        const uint32_t axes = tensor->tensor.dimensions ? tensor->tensor.dimensions : 1;
        if (tensor->tensor.kind != GRADWEIR_PARAMETER)
            return fail(GRADWEIR_ERR_INVALID, "a part of tensor %s: MOMENTS are whole",
                        tensor->name);
        if (said->part.axis >= axes || said->part.first > extent(tensor, said->part.axis) ||
            said->part.count > extent(tensor, said->part.axis) - said->part.first)
            return fail(GRADWEIR_ERR_INVALID,
                        "a part of tensor %s: axis %u, %" PRIu64 " from %" PRIu64
                        " on is not within it",
                        tensor->name, said->part.axis, said->part.count, said->part.first);
        tensor->own = true;
        tensor->part = said->part;
    }
    return GRADWEIR_OK;
}

uint64_t group_part_elements(const struct group_tensor *tensor)
{
    const uint64_t period =
        extent(tensor, tensor->part.axis) * group_rest(tensor, tensor->part.axis);
    return period ? tensor->elements / period * tensor->part.count *
                        group_rest(tensor, tensor->part.axis)
                  : 0;
}

/* Places in the flat arrays: first the whole tensors, then the others. */
static void place(struct gradweir_ranks *group)
{
    uint64_t at = 0, own = 0;
    for (size_t i = 0; i < group->tensors_count; i++)
        if (is_cut(&group->tensors[i])) {
            group->tensors[i].at = at;
            at += group->tensors[i].elements;
        }
    group->shared_elements = at;
    for (size_t i = 0; i < group->tensors_count; i++) {
        struct group_tensor *tensor = &group->tensors[i];
        if (tensor->tensor.kind == GRADWEIR_MOMENTS) {
            tensor->at = group->moments_count;
            group->moments_count += tensor->elements;
        } else if (tensor->own) {
            tensor->at = at;
            tensor->sum_at = group->shared_elements + own;
            at += tensor->elements;
            own += group_part_elements(tensor);
        }
    }
    group->elements = at;
    group->own_elements = own;
}

/* Whether the caller's parameters are one array in order: then nothing has to be copied. */
static bool end_to_end(const struct gradweir_ranks *group)
{
    const float *first = NULL;
    for (size_t i = 0; i < group->tensors_count; i++) {
        const struct group_tensor *tensor = &group->tensors[i];
        if (tensor->tensor.kind == GRADWEIR_MOMENTS)
            continue;
        const float *here = tensor->tensor.parameters;
        if (tensor->own || !here || (first && here != first + tensor->at))
            return false;
        first = first ? first : here;
    }
    return first != NULL;
}

static gradweir_status take_memory(struct gradweir_ranks *group)
{
    const uint64_t sums = group->shared_elements + group->own_elements;
    group->lent = end_to_end(group);
    for (size_t i = 0; group->lent && !group->whole && i < group->tensors_count; i++)
        if (group->tensors[i].tensor.kind == GRADWEIR_PARAMETER)
            group->whole = group->tensors[i].tensor.parameters;
    if (!group->lent)
        group->whole = calloc(group->elements + 1, sizeof *group->whole);
    group->sum = calloc(sums + 1, sizeof *group->sum);
    group->moments = calloc(group->moments_count + 1, sizeof *group->moments);
    group->all_moments =
        calloc((group->moments_count + 1) * GRADWEIR_RANKS_MAX, sizeof *group->all_moments);
    group->boxes = calloc(group->tensors_count, sizeof *group->boxes);
    if (group->whole && group->sum && group->moments && group->all_moments && group->boxes)
        return GRADWEIR_OK;
    return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a group's %" PRIu64 " elements", sums);
}

void group_unbind(struct gradweir_ranks *group)
{
    if (!group->lent)
        free(group->whole);
    free(group->sum);
    free(group->part);
    free(group->moments);
    free(group->all_moments);
    free(group->boxes);
    free(group->tensors);
    free(group->said);
    group->whole = group->sum = group->part = NULL;
    group->moments = group->all_moments = NULL;
    group->boxes = NULL;
    group->tensors = NULL;
    group->said = NULL;
}

/* ---- The cut, for the ranks that there are now. ---- */

/* Where the part of place `r` begins: a row's beginning, at or before an equal cut. */
static uint64_t cut_at(const struct gradweir_ranks *group, uint32_t r)
{
    if (r == group->count)
        return group->shared_elements;
    const uint64_t goal = group->shared_elements / group->count * r +
                          group->shared_elements % group->count * r / group->count;
    for (size_t i = 0; i < group->tensors_count; i++) {
        const struct group_tensor *tensor = &group->tensors[i];
        if (!is_cut(tensor) || goal < tensor->at || goal >= tensor->at + tensor->elements)
            continue;
        const uint64_t row = group_rest(tensor, row_axis(tensor));
        return tensor->at + (goal - tensor->at) / row * row;
    }
    return goal;
}

static void cut(struct gradweir_ranks *group)
{
    for (uint32_t r = 0; r < group->count; r++)
        group->counts[r] = (size_t)(cut_at(group, r + 1) - cut_at(group, r));
    group->begin = cut_at(group, group->rank);
    const uint64_t end = group->begin + group->counts[group->rank];
    uint64_t own = group->counts[group->rank];
    for (size_t i = 0; i < group->tensors_count; i++) {
        struct group_tensor *tensor = &group->tensors[i];
        if (tensor->own) {
            tensor->part_at = own;
            own += group_part_elements(tensor);
        }
        if (!is_cut(tensor))
            continue;
        const uint32_t axis = row_axis(tensor);
        const uint64_t row = group_rest(tensor, axis);
        const uint64_t from = group->begin > tensor->at ? group->begin - tensor->at : 0;
        uint64_t to = end > tensor->at ? end - tensor->at : 0;
        to = to < tensor->elements ? to : tensor->elements;
        tensor->part = (struct group_part){.axis = axis};
        if (to > from && row > 0)
            tensor->part =
                (struct group_part){.axis = axis, .first = from / row, .count = (to - from) / row};
        tensor->part_at = tensor->at + from - group->begin;
    }
}

static void box(struct gradweir_ranks *group, const struct group_tensor *tensor)
{
    const struct group_part *part = &tensor->part;
    gradweir_box box = {.tensor = tensor->name, .axis = part->axis};
    if (tensor->tensor.kind == GRADWEIR_MOMENTS) {
        box.count = extent(tensor, 0);
        box.to = tensor->tensor.parameters;
        box.to_bytes = tensor->elements * sizeof(struct moments);
    } else {
        box.first = part->first;
        box.count = part->count;
        box.to = tensor->own
                     ? tensor->tensor.parameters
                     : group->whole + tensor->at + part->first * group_rest(tensor, part->axis);
        box.to_bytes = group_part_elements(tensor) * sizeof(float);
    }
    if (box.to && box.count > 0)
        group->boxes[group->boxes_count++] = box;
}

/* What this rank pulls. Who has nothing pulls a row that is everybody's, to have a version. */
static gradweir_status list_boxes(struct gradweir_ranks *group)
{
    group->boxes_count = 0;
    for (size_t i = 0; i < group->tensors_count; i++)
        box(group, &group->tensors[i]);
    for (size_t i = 0; i < group->tensors_count && group->boxes_count == 0; i++)
        if (is_cut(&group->tensors[i])) {
            struct group_tensor row = group->tensors[i];
            row.part = (struct group_part){.axis = row_axis(&row), .count = 1};
            box(group, &row);
            group->boxes[0].tensor = group->tensors[i].name;
        }
    if (group->boxes_count == 0)
        return fail(GRADWEIR_ERR_INVALID, "rank %u holds nothing of any tensor",
                    group->client_options.rank);
    if (group->boxes_count > GRADWEIR_BOXES_MAX)
        return fail(GRADWEIR_ERR_FULL, "a rank with parts of %zu tensors: at most %d",
                    group->boxes_count, GRADWEIR_BOXES_MAX);
    return GRADWEIR_OK;
}

/* ---- The worker. ---- */

static gradweir_status tell_parts(struct gradweir_ranks *group, gradweir_client *client)
{
    for (size_t i = 0; i < group->tensors_count && group->count > 1; i++) {
        const struct group_tensor *tensor = &group->tensors[i];
        if (tensor->tensor.kind == GRADWEIR_PARAMETER)
            TRY(gradweir_part(client, i, tensor->part.axis, tensor->part.first,
                              tensor->part.count));
    }
    return GRADWEIR_OK;
}

static gradweir_status bind(struct gradweir_ranks *group, gradweir_client *client)
{
    gradweir_tensor *tensors = calloc(group->tensors_count, sizeof *tensors);
    if (!tensors)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for %zu tensors", group->tensors_count);
    for (size_t i = 0; i < group->tensors_count; i++) {
        const struct group_tensor *tensor = &group->tensors[i];
        tensors[i] = tensor->tensor;
        if (tensor->tensor.kind == GRADWEIR_MOMENTS) {
            tensors[i].gradient = group->all_moments + tensor->at;
            continue;
        }
        tensors[i].parameters = group->whole + tensor->at;
        tensors[i].gradient = group->part + (tensor->part.count ? tensor->part_at : 0);
    }
    gradweir_status status = tell_parts(group, client);
    if (status == GRADWEIR_OK)
        status = gradweir_bind(client, tensors, group->tensors_count);
    free(tensors);
    return status;
}

static gradweir_status open_worker(struct gradweir_ranks *group, gradweir_client **client)
{
    gradweir_options options = group->client_options;
    char text[256];
    snprintf(text, sizeof text, "%.200s#%016" PRIx64 ".%" PRIu32,
             options.group ? options.group : "", group->meeting, group->shrunk);
    options.group = text;
    options.rank = group->rank;
    options.ranks = group->count;
    TRY(gradweir_open(&options, client));
    for (uint32_t i = 1; i < group->groups_count; i++) {
        uint32_t number;
        TRY(gradweir_group_add(*client, &group->groups[i], &number));
    }
    return GRADWEIR_OK;
}

gradweir_status group_connect(struct gradweir_ranks *group)
{
    group_disconnect(group);
    cut(group);
    TRY(list_boxes(group));
    free(group->part);
    group->part = calloc(group->counts[group->rank] + group->own_elements + 1, sizeof *group->part);
    if (!group->part)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a rank's part");
    gradweir_client *client = NULL;
    gradweir_status status = open_worker(group, &client);
    if (status == GRADWEIR_OK)
        status = bind(group, client);
    if (status != GRADWEIR_OK) {
        group->fenced |= status == GRADWEIR_ERR_FENCED;
        gradweir_close(client);
        return status;
    }
    group->client = client;
    return GRADWEIR_OK;
}

void group_disconnect(struct gradweir_ranks *group)
{
    gradweir_close(group->client);
    group->client = NULL;
}

static gradweir_status take_all(struct gradweir_ranks *group, const gradweir_tensor *tensors,
                                size_t count)
{
    group->tensors = calloc(count, sizeof *group->tensors);
    if (!group->tensors)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for %zu tensors", count);
    group->tensors_count = count;
    for (size_t i = 0; i < count; i++)
        TRY(take_tensor(group, i, &tensors[i]));
    TRY(take_parts(group));
    place(group);
    return take_memory(group);
}

/* As before bind, and parts that were told still hold. */
static void forget(struct gradweir_ranks *group)
{
    struct group_said *said = group->said;
    group->said = NULL;
    group_unbind(group);
    group->said = said;
    group->lent = false;
    group->moments_count = 0;
}

gradweir_status gradweir_group_bind(gradweir_ranks *group, const gradweir_tensor *tensors,
                                    size_t count)
{
    TRY(client_given(group, "group"));
    TRY(client_given(tensors, "tensors"));
    TRY(group_whole(group, "bind"));
    if (group->tensors)
        return fail(GRADWEIR_ERR_STATE, "bind is called once");
    if (count == 0 || count > MODEL_TENSORS_MAX)
        return fail(GRADWEIR_ERR_INVALID, "%zu tensors: 1 to %d", count, MODEL_TENSORS_MAX);
    gradweir_status status = take_all(group, tensors, count);
    if (status != GRADWEIR_OK) {
        forget(group); /* nobody has heard of it */
        return status;
    }
    status = group_connect(group);
    group->broken = status != GRADWEIR_OK;
    return status;
}
