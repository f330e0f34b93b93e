/* What a rank says that it has: whatever is accepted is written again as the same bytes; what fits
 * the model has runs that rise, do not overlap and stay within it; and the same input cut in two
 * either tiles the model or is refused. */
#include "common/parts.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static struct model *model;

static void begin(void)
{
    const struct model_tensor tensors[] = {
        {.name = "matrix", .dimensions = 2, .shape = {6, 10}},
        {.name = "cube", .dimensions = 3, .shape = {3, 4, 5}},
        {.name = "scalar"},
        {.name = "seen", .kind = MODEL_MOMENTS, .dimensions = 1, .shape = {2}}};
    ASSERT(model_new(4, &model) == GRADWEIR_OK);
    for (int i = 0; i < 4; i++)
        ASSERT(model_add(model, &tensors[i]) == GRADWEIR_OK);
    ASSERT(model_seal(model) == GRADWEIR_OK);
}

static uint64_t walk(const struct parts *parts)
{
    uint64_t begin, end, from = 0, sum = 0;
    while (parts_run(parts, model, from, 16, &begin, &end)) {
        ASSERT(begin >= from && end > begin && end <= model->elements);
        sum += end - begin;
        from = end;
    }
    return sum;
}

static struct parts *read(const uint8_t *bytes, size_t count)
{
    struct parts *parts = NULL;
    if (parts_decode(bytes, count, &parts) != GRADWEIR_OK)
        return NULL;
    uint8_t *again = malloc(parts_bytes(parts));
    ASSERT(again && parts_bytes(parts) == count);
    parts_encode(parts, again);
    ASSERT(memcmp(again, bytes, count) == 0);
    free(again);
    if (parts_check(parts, model) == GRADWEIR_OK)
        return parts;
    free(parts);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (!model)
        begin();
    const size_t cut = count > 0 ? bytes[0] : 0; /* where the second rank's begin; 0: nowhere */
    if (count == 0 || cut >= count)
        return 0;
    struct parts *one = read(bytes + 1, cut ? cut - 1 : count - 1);
    struct parts *two = cut ? read(bytes + cut, count - cut) : NULL;
    const uint64_t sum = (one ? walk(one) : 0) + (two ? walk(two) : 0);
    const struct parts *both[] = {one, two};
    if (one && two && parts_tile(both, 2, model) == GRADWEIR_OK)
        ASSERT(sum == model->elements);
    free(one);
    free(two);
    return 0;
}
