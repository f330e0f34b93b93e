/* The canonical bytes of a layout, written for the wire and the hash, read from anybody. */
#include "common/model.h"

#include <string.h>

#define MAGIC            UINT32_C(0x4c4d5747)
#define VERSION          1u
#define HEADER_BYTES     12u
#define GROUP_BYTES      33u
#define TENSOR_BYTES_MIN 5u /* a length, one letter, kind, group, no dimension */

struct writer {
    unsigned char *next;
};

static void put(struct writer *writer, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        *writer->next++ = (unsigned char)(value >> (8 * i));
}

static void put_double(struct writer *writer, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put(writer, bits, 8);
}

size_t model_encoded_bytes(const struct model *model)
{
    size_t bytes = HEADER_BYTES + (size_t)model->groups_count * GROUP_BYTES;
    for (uint32_t i = 0; i < model->tensors_count; i++)
        bytes += 4 + strlen(model->tensors[i].name) + 8 * (size_t)model->tensors[i].dimensions;
    return bytes;
}

gradweir_status model_encode(const struct model *model, void *bytes, size_t size)
{
    if (size < model_encoded_bytes(model))
        return fail(GRADWEIR_ERR_FULL, "the layout has %zu bytes, there is room for %zu",
                    model_encoded_bytes(model), size);
    struct writer writer = {.next = bytes};
    put(&writer, MAGIC, 4);
    put(&writer, VERSION, 2);
    put(&writer, model->groups_count, 2);
    put(&writer, model->tensors_count, 4);
    for (uint32_t i = 0; i < model->groups_count; i++) {
        const struct model_group *group = &model->groups[i];
        put_double(&writer, group->learning_rate_scale);
        put_double(&writer, group->weight_decay);
        put_double(&writer, group->beta1);
        put_double(&writer, group->beta2);
        put(&writer, group->frozen, 1);
    }
    for (uint32_t i = 0; i < model->tensors_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        const size_t length = strlen(tensor->name);
        put(&writer, length, 1);
        memcpy(writer.next, tensor->name, length);
        writer.next += length;
        put(&writer, tensor->kind, 1);
        put(&writer, tensor->group, 1);
        put(&writer, tensor->dimensions, 1);
        for (uint32_t d = 0; d < tensor->dimensions; d++)
            put(&writer, tensor->shape[d], 8);
    }
    ASSERT((size_t)(writer.next - (unsigned char *)bytes) == model_encoded_bytes(model));
    return GRADWEIR_OK;
}

/* Reads past the end give 0 and set `torn`, which is checked once per item. */
struct reader {
    const unsigned char *next;
    size_t left;
    bool torn;
};

static uint64_t get(struct reader *reader, unsigned bytes)
{
    if (reader->left < bytes) {
        reader->torn = true;
        reader->left = 0;
        return 0;
    }
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)reader->next[i] << (8 * i);
    reader->next += bytes;
    reader->left -= bytes;
    return value;
}

static double get_double(struct reader *reader)
{
    const uint64_t bits = get(reader, 8);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static gradweir_status torn(void)
{
    return fail(GRADWEIR_ERR_PROTOCOL, "a model layout ends too early");
}

static gradweir_status read_groups(struct reader *reader, uint32_t count, struct model *model)
{
    for (uint32_t i = 0; i < count; i++) {
        struct model_group group = {.learning_rate_scale = get_double(reader)};
        group.weight_decay = get_double(reader);
        group.beta1 = get_double(reader);
        group.beta2 = get_double(reader);
        const uint64_t frozen = get(reader, 1);
        if (reader->torn)
            return torn();
        if (frozen > 1)
            return fail(GRADWEIR_ERR_PROTOCOL, "a model layout's group %u is malformed", i);
        group.frozen = frozen == 1;
        uint32_t number;
        TRY(i == 0 ? model_group_default(model, &group) : model_group_add(model, &group, &number));
    }
    return GRADWEIR_OK;
}

static gradweir_status read_tensor(struct reader *reader, struct model *model)
{
    struct model_tensor tensor = {.kind = MODEL_PARAMETER};
    const size_t length = (size_t)get(reader, 1);
    if (reader->torn || length > reader->left)
        return torn();
    if (length > MODEL_NAME_MAX || memchr(reader->next, 0, length))
        return fail(GRADWEIR_ERR_PROTOCOL, "a model layout has a malformed name");
    memcpy(tensor.name, reader->next, length);
    reader->next += length;
    reader->left -= length;
    const uint64_t kind = get(reader, 1);
    tensor.group = (uint32_t)get(reader, 1);
    tensor.dimensions = (uint32_t)get(reader, 1);
    if (kind > MODEL_MOMENTS || tensor.dimensions > MODEL_DIMENSIONS_MAX)
        return fail(GRADWEIR_ERR_PROTOCOL, "a model layout has a malformed tensor");
    tensor.kind = (enum model_kind)kind;
    for (uint32_t d = 0; d < tensor.dimensions; d++)
        tensor.shape[d] = get(reader, 8);
    return reader->torn ? torn() : model_add(model, &tensor);
}

static gradweir_status read_body(struct reader *reader, uint32_t groups, struct model *model)
{
    TRY(read_groups(reader, groups, model));
    for (uint32_t i = 0; i < model->tensors_max; i++)
        TRY(read_tensor(reader, model));
    if (reader->left > 0)
        return fail(GRADWEIR_ERR_PROTOCOL, "a model layout has %zu bytes too many", reader->left);
    return model_seal(model);
}

gradweir_status model_decode(const void *bytes, size_t size, struct model **model)
{
    struct reader reader = {.next = bytes, .left = size};
    const uint64_t magic = get(&reader, 4);
    const uint64_t version = get(&reader, 2);
    const uint32_t groups = (uint32_t)get(&reader, 2);
    const uint32_t tensors = (uint32_t)get(&reader, 4);
    if (reader.torn)
        return torn();
    if (magic != MAGIC || version != VERSION)
        return fail(GRADWEIR_ERR_PROTOCOL, "not a model layout of version %u", VERSION);
    if (groups == 0 || groups > MODEL_GROUPS_MAX || tensors == 0 || tensors > MODEL_TENSORS_MAX)
        return fail(GRADWEIR_ERR_PROTOCOL, "a model layout of %u groups and %u tensors", groups,
                    tensors);
    /* Before memory is taken for them, the bytes must be there that so many tensors need. */
    if (reader.left < (size_t)groups * GROUP_BYTES + (size_t)tensors * TENSOR_BYTES_MIN)
        return torn();
    struct model *fresh;
    TRY(model_new(tensors, &fresh));
    const gradweir_status status = read_body(&reader, groups, fresh);
    if (status != GRADWEIR_OK) {
        model_free(fresh);
        /* What a builder calls invalid is a malformed message when a peer sent it. */
        return status == GRADWEIR_ERR_NO_MEMORY ? status : GRADWEIR_ERR_PROTOCOL;
    }
    *model = fresh;
    return GRADWEIR_OK;
}
