/* Bounds whatever arrives before a general parser sees it. Our values are flat arrays, so the scan
 * refuses everything else: maps, extensions, nil, booleans, nested arrays. */
#include "common/wire_fields.h"

#include "common/wire.h"

enum { SCAN_ELEMENTS_MAX = 64 };

static uint64_t big_endian(const uint8_t *bytes, size_t count)
{
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++)
        value = value << 8 | bytes[i];
    return value;
}

struct shape {
    size_t head; /* bytes of type and length field */
    uint64_t body;
};

/* What the element that starts with this type byte occupies. */
static gradweir_status element_shape(const uint8_t *bytes, size_t rest, struct shape *shape)
{
    const uint8_t type = bytes[0];
    size_t length_bytes = 0;
    *shape = (struct shape){.head = 1};
    if (type < 0x80 || type >= 0xe0)
        return GRADWEIR_OK;
    if (type >= 0xa0 && type < 0xc0) {
        shape->body = type & 0x1f;
        return GRADWEIR_OK;
    }
    switch (type) {
    case 0xca:
    case 0xce:
    case 0xd2: shape->body = 4; return GRADWEIR_OK;
    case 0xcb:
    case 0xcf:
    case 0xd3: shape->body = 8; return GRADWEIR_OK;
    case 0xcc:
    case 0xd0: shape->body = 1; return GRADWEIR_OK;
    case 0xcd:
    case 0xd1: shape->body = 2; return GRADWEIR_OK;
    case 0xc4:
    case 0xd9: length_bytes = 1; break;
    case 0xc5:
    case 0xda: length_bytes = 2; break;
    case 0xc6:
    case 0xdb: length_bytes = 4; break;
    default: return fail(GRADWEIR_ERR_PROTOCOL, "type byte 0x%02x has no place in a message", type);
    }
    if (rest < 1 + length_bytes)
        return fail(GRADWEIR_ERR_PROTOCOL, "the frame ends within a length");
    shape->head = 1 + length_bytes;
    shape->body = big_endian(bytes + 1, length_bytes);
    return GRADWEIR_OK;
}

/* One meaning, one form: so that what is accepted has the same bytes, and hash, when it is written
 * again. Shortest forms of numbers and lengths are what msgpack-c packs. */
static bool wasteful(const uint8_t *bytes, const struct shape *shape)
{
    const bool is_number = bytes[0] >= 0xcc && bytes[0] <= 0xd3;
    const uint64_t value = is_number ? big_endian(bytes + 1, (size_t)shape->body) : 0;
    switch (bytes[0]) {
    case 0xcc: return value < 0x80;
    case 0xcd: return value <= UINT8_MAX;
    case 0xce: return value <= UINT16_MAX;
    case 0xcf: return value <= UINT32_MAX;
    case 0xd0: return (int8_t)value >= -32;
    case 0xd1: return (int16_t)value >= INT8_MIN;
    case 0xd2: return (int32_t)value >= INT16_MIN;
    case 0xd3: return (int64_t)value >= INT32_MIN;
    case 0xd9: return shape->body < 32;
    case 0xc5:
    case 0xda: return shape->body <= UINT8_MAX;
    case 0xc6:
    case 0xdb: return shape->body <= UINT16_MAX;
    default: return false;
    }
}

gradweir_status wire_scan(const uint8_t *bytes, size_t count, size_t *length)
{
    size_t at = 1, elements;
    if (count == 0)
        return fail(GRADWEIR_ERR_PROTOCOL, "an empty message");
    if (bytes[0] >= 0x90 && bytes[0] <= 0x9f) {
        elements = bytes[0] & 0x0f;
    } else if (bytes[0] == 0xdc && count >= 3) {
        elements = (size_t)big_endian(bytes + 1, 2);
        at = 3;
    } else {
        return fail(GRADWEIR_ERR_PROTOCOL, "a message must be an array, not type 0x%02x", bytes[0]);
    }
    if (at == 3 && elements < 16)
        return fail(GRADWEIR_ERR_PROTOCOL, "an array of %zu is not in its shortest form", elements);
    if (elements > SCAN_ELEMENTS_MAX)
        return fail(GRADWEIR_ERR_PROTOCOL, "an array of %zu elements: at most %d are allowed",
                    elements, SCAN_ELEMENTS_MAX);
    for (size_t i = 0; i < elements; i++) {
        struct shape shape;
        if (at >= count)
            return fail(GRADWEIR_ERR_PROTOCOL, "the frame ends before element %zu of %zu", i,
                        elements);
        TRY(element_shape(bytes + at, count - at, &shape));
        if (shape.head + shape.body > count - at)
            return fail(GRADWEIR_ERR_PROTOCOL, "element %zu says %llu bytes, the frame has %zu", i,
                        (unsigned long long)shape.body, count - at - shape.head);
        if (wasteful(bytes + at, &shape))
            return fail(GRADWEIR_ERR_PROTOCOL, "element %zu (0x%02x) is not in its shortest form",
                        i, bytes[at]);
        at += shape.head + (size_t)shape.body;
    }
    *length = at;
    return GRADWEIR_OK;
}
