/* One field in, one field out. Numbers are stored by memcpy at the row's offset. msgpack-c carries
 * a float32 as a double, which changes the bits of some NaNs; none of ours may be one. */
#include "common/wire_fields.h"

#include <math.h>
#include <msgpack.h>
#include <string.h>

static uint32_t read_u32(const void *base, uint32_t offset)
{
    uint32_t value;
    memcpy(&value, (const char *)base + offset, sizeof value);
    return value;
}

static uint64_t read_u64(const void *base, uint32_t offset)
{
    uint64_t value;
    memcpy(&value, (const char *)base + offset, sizeof value);
    return value;
}

static void pack_binary(msgpack_packer *packer, const void *bytes, size_t count)
{
    msgpack_pack_bin(packer, count);
    msgpack_pack_bin_body(packer, bytes, count);
}

static void pack_counted(msgpack_packer *packer, const struct field *field, const void *base)
{
    const uint32_t count = read_u32(base, field->count);
    ASSERT(count <= field->max);
    const void *place = (const char *)base + field->offset;
    if (field->type == FIELD_DATA)
        memcpy(&place, place, sizeof(const void *));
    pack_binary(packer, place, (size_t)count * field->size);
}

static uint64_t number_within(const struct field *field, uint64_t value)
{
    ASSERT(value >= field->min && value <= field->max);
    return value;
}

void field_pack(struct msgpack_packer *packer, const struct field *field, const void *base)
{
    const char *place = (const char *)base + field->offset;
    float single;
    double number;
    switch (field->type) {
    case FIELD_U32:
        msgpack_pack_uint64(packer, number_within(field, read_u32(base, field->offset)));
        break;
    case FIELD_U64:
        msgpack_pack_uint64(packer, number_within(field, read_u64(base, field->offset)));
        break;
    case FIELD_I32: msgpack_pack_int32(packer, (int32_t)read_u32(base, field->offset)); break;
    case FIELD_F32:
        memcpy(&single, place, sizeof single);
        ASSERT(!isnan(single));
        msgpack_pack_float(packer, single);
        break;
    case FIELD_F64:
        memcpy(&number, place, sizeof number);
        msgpack_pack_double(packer, number);
        break;
    case FIELD_TEXT: {
        const size_t length = strnlen(place, field->size);
        ASSERT(length < field->size);
        msgpack_pack_str(packer, length);
        msgpack_pack_str_body(packer, place, length);
        break;
    }
    case FIELD_BYTES: pack_binary(packer, place, field->size); break;
    case FIELD_BLOB:
    case FIELD_DATA: pack_counted(packer, field, base); break;
    }
}

static gradweir_status unpack_unsigned(const msgpack_object *object, const struct field *field,
                                       void *base)
{
    const uint64_t high =
        field->type == FIELD_U32 && field->max > UINT32_MAX ? UINT32_MAX : field->max;
    if (object->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
        return fail(GRADWEIR_ERR_PROTOCOL, "%s is not an unsigned integer", field->name);
    if (object->via.u64 > high)
        return fail(GRADWEIR_ERR_PROTOCOL, "%s is %llu, above %llu", field->name,
                    (unsigned long long)object->via.u64, (unsigned long long)high);
    if (object->via.u64 < field->min)
        return fail(GRADWEIR_ERR_PROTOCOL, "%s is %llu, below %llu", field->name,
                    (unsigned long long)object->via.u64, (unsigned long long)field->min);
    const uint32_t narrow = (uint32_t)object->via.u64;
    if (field->type == FIELD_U32)
        memcpy((char *)base + field->offset, &narrow, sizeof narrow);
    else
        memcpy((char *)base + field->offset, &object->via.u64, sizeof object->via.u64);
    return GRADWEIR_OK;
}

static gradweir_status unpack_i32(const msgpack_object *object, const struct field *field,
                                  void *base)
{
    const bool positive = object->type == MSGPACK_OBJECT_POSITIVE_INTEGER;
    if (!positive && object->type != MSGPACK_OBJECT_NEGATIVE_INTEGER)
        return fail(GRADWEIR_ERR_PROTOCOL, "%s is not an integer", field->name);
    if (positive ? object->via.u64 > INT32_MAX : object->via.i64 < INT32_MIN)
        return fail(GRADWEIR_ERR_PROTOCOL, "%s does not fit in 32 bits", field->name);
    const int32_t value = (int32_t)object->via.i64;
    memcpy((char *)base + field->offset, &value, sizeof value);
    return GRADWEIR_OK;
}

static gradweir_status unpack_float(const msgpack_object *object, const struct field *field,
                                    void *base)
{
    const bool single = field->type == FIELD_F32;
    if (object->type != (single ? MSGPACK_OBJECT_FLOAT32 : MSGPACK_OBJECT_FLOAT64))
        return fail(GRADWEIR_ERR_PROTOCOL, "%s is not a float%d", field->name, single ? 32 : 64);
    if (single && isnan(object->via.f64))
        return fail(GRADWEIR_ERR_PROTOCOL, "%s is not a number", field->name);
    const float narrow = (float)object->via.f64;
    if (single)
        memcpy((char *)base + field->offset, &narrow, sizeof narrow);
    else
        memcpy((char *)base + field->offset, &object->via.f64, sizeof object->via.f64);
    return GRADWEIR_OK;
}

static gradweir_status unpack_text(const msgpack_object *object, const struct field *field,
                                   void *base)
{
    if (object->type != MSGPACK_OBJECT_STR)
        return fail(GRADWEIR_ERR_PROTOCOL, "%s is not a string", field->name);
    if (object->via.str.size >= field->size)
        return fail(GRADWEIR_ERR_PROTOCOL, "%s has %u bytes, at most %u are allowed", field->name,
                    object->via.str.size, field->size - 1);
    if (object->via.str.size && memchr(object->via.str.ptr, 0, object->via.str.size))
        return fail(GRADWEIR_ERR_PROTOCOL, "%s has a zero byte in it", field->name);
    char *place = (char *)base + field->offset;
    memset(place, 0, field->size);
    if (object->via.str.size)
        memcpy(place, object->via.str.ptr, object->via.str.size);
    return GRADWEIR_OK;
}

static gradweir_status unpack_binary(const msgpack_object *object, const struct field *field,
                                     void *base)
{
    char *place = (char *)base + field->offset;
    if (object->type != MSGPACK_OBJECT_BIN)
        return fail(GRADWEIR_ERR_PROTOCOL, "%s is not binary", field->name);
    const uint32_t bytes = object->via.bin.size;
    if (field->type == FIELD_BYTES) {
        if (bytes != field->size)
            return fail(GRADWEIR_ERR_PROTOCOL, "%s has %u bytes, not %u", field->name, bytes,
                        field->size);
        memcpy(place, object->via.bin.ptr, bytes);
        return GRADWEIR_OK;
    }
    const uint32_t count = bytes / field->size;
    if (bytes % field->size || count > field->max)
        return fail(GRADWEIR_ERR_PROTOCOL, "%s has %u bytes: elements of %u, at most %llu of them",
                    field->name, bytes, field->size, (unsigned long long)field->max);
    memcpy((char *)base + field->count, &count, sizeof count);
    if (field->type == FIELD_DATA)
        memcpy(place, &object->via.bin.ptr, sizeof object->via.bin.ptr);
    else
        memcpy(place, object->via.bin.ptr, bytes);
    return GRADWEIR_OK;
}

gradweir_status field_unpack(const struct msgpack_object *object, const struct field *field,
                             void *base)
{
    switch (field->type) {
    case FIELD_U32:
    case FIELD_U64: return unpack_unsigned(object, field, base);
    case FIELD_I32: return unpack_i32(object, field, base);
    case FIELD_F32:
    case FIELD_F64: return unpack_float(object, field, base);
    case FIELD_TEXT: return unpack_text(object, field, base);
    case FIELD_BYTES:
    case FIELD_BLOB:
    case FIELD_DATA: break;
    }
    return unpack_binary(object, field, base);
}
