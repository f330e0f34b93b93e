/* One row describes one field of a struct, for packing and unpacking alike. */
#ifndef GRADWEIR_COMMON_WIRE_FIELDS_H
#define GRADWEIR_COMMON_WIRE_FIELDS_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

enum field_type {
    FIELD_U32,
    FIELD_U64,
    FIELD_I32,
    FIELD_F32,
    FIELD_F64,
    FIELD_TEXT,  /* char array, NUL-terminated; size is the array's */
    FIELD_BYTES, /* exactly size bytes */
    FIELD_BLOB, /* array of `size`-byte little-endian elements; a uint32_t at `count` says how many,
                   max at most */
    FIELD_DATA  /* pointer to bytes within the frame; a uint32_t at `count` says how many, max at
                   most */
};

struct field {
    const char *name;
    enum field_type type;
    uint32_t offset, size, count;
    uint64_t max; /* largest allowed value, or number of elements */
    uint64_t min; /* smallest allowed value */
};

struct field_table {
    const struct field *fields;
    uint32_t count;
};

struct msgpack_packer;
struct msgpack_object;

void field_pack(struct msgpack_packer *packer, const struct field *field, const void *base);
gradweir_status field_unpack(const struct msgpack_object *object, const struct field *field,
                             void *base);

/* Rows by kind; count 0 and fields NULL for a number that is no kind. A record's message has no
 * rows: its body is record_encode's bytes. */
struct field_table message_fields(uint32_t kind);
struct field_table record_fields(uint32_t kind);

/* Walks one MessagePack value at the start of bytes: an array of integers, floats, strings and
 * binaries, nothing nested, everything in its shortest form. Tells its length in bytes.
 * ERR_PROTOCOL says which rule was broken. */
gradweir_status wire_scan(const uint8_t *bytes, size_t count, size_t *length);

#endif
