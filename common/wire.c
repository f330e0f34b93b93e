/* Frames and messages, records and their hashes. */
#include "common/wire.h"

#include "common/checksum.h"
#include "common/wire_fields.h"

#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_ELEMENTS = 3, RECORD_HEAD_ELEMENTS = 5, ZONE_BYTES = 4096 };

struct wire_decoder {
    msgpack_zone zone;
};

/* A fixed piece of memory that msgpack packs into; too small shows in `full`. */
struct target {
    uint8_t *bytes;
    size_t count, room;
    bool full;
};

static int append(void *context, const char *bytes, size_t count)
{
    struct target *target = context;
    if (target->full || count > target->room - target->count) {
        target->full = true;
        return -1;
    }
    if (count)
        memcpy(target->bytes + target->count, bytes, count);
    target->count += count;
    return 0;
}

static void pack_fields(msgpack_packer *packer, struct field_table table, const void *base)
{
    for (uint32_t i = 0; i < table.count; i++)
        field_pack(packer, &table.fields[i], base);
}

size_t record_encode(const struct record *record, uint8_t *bytes)
{
    struct target target = {.bytes = bytes, .room = RECORD_BYTES_MAX};
    msgpack_packer packer;
    msgpack_packer_init(&packer, &target, append);
    const struct field_table table = record_fields(record->kind);
    ASSERT(table.fields);
    msgpack_pack_array(&packer, RECORD_HEAD_ELEMENTS + table.count);
    msgpack_pack_uint32(&packer, record->kind);
    msgpack_pack_uint32(&packer, record->epoch);
    msgpack_pack_uint32(&packer, record->timeline);
    msgpack_pack_uint64(&packer, record->index);
    msgpack_pack_uint64(&packer, record->previous);
    pack_fields(&packer, table, record);
    ASSERT(!target.full);
    return target.count;
}

uint64_t record_hash(const struct record *record)
{
    uint8_t bytes[RECORD_BYTES_MAX];
    const size_t count = record_encode(record, bytes);
    return checksum_hash64(0, bytes, count);
}

gradweir_status wire_encode(const struct message *message, uint8_t *bytes, size_t room,
                            size_t *written)
{
    struct target target = {.bytes = bytes, .room = room};
    msgpack_packer packer;
    msgpack_packer_init(&packer, &target, append);
    const struct field_table table = message_fields(message->kind);
    const bool is_record = message->kind == MESSAGE_RECORD;
    ASSERT(message_name(message->kind)[0] != '?');
    msgpack_pack_array(&packer, HEAD_ELEMENTS + table.count + is_record);
    msgpack_pack_uint32(&packer, message->kind);
    msgpack_pack_uint32(&packer, message->epoch);
    msgpack_pack_uint32(&packer, message->timeline);
    pack_fields(&packer, table, message);
    if (is_record) {
        uint8_t record[RECORD_BYTES_MAX];
        const size_t count = record_encode(&message->record, record);
        msgpack_pack_bin(&packer, count);
        msgpack_pack_bin_body(&packer, record, count);
    }
    if (target.full)
        return fail(GRADWEIR_ERR_FULL, "a %s does not fit in %zu bytes",
                    message_name(message->kind), room);
    *written = target.count;
    return GRADWEIR_OK;
}

gradweir_status wire_decoder_new(struct wire_decoder **decoder)
{
    struct wire_decoder *made = calloc(1, sizeof *made);
    if (!made || !msgpack_zone_init(&made->zone, ZONE_BYTES)) {
        free(made);
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a message decoder");
    }
    *decoder = made;
    return GRADWEIR_OK;
}

void wire_decoder_free(struct wire_decoder *decoder)
{
    if (decoder)
        msgpack_zone_destroy(&decoder->zone);
    free(decoder);
}

static gradweir_status parse(msgpack_zone *zone, const uint8_t *bytes, size_t count,
                             msgpack_object *array, size_t *used)
{
    TRY(wire_scan(bytes, count, used));
    size_t offset = 0;
    msgpack_zone_clear(zone);
    if (msgpack_unpack((const char *)bytes, *used, &offset, zone, array) < 0 || offset != *used ||
        array->type != MSGPACK_OBJECT_ARRAY)
        return fail(GRADWEIR_ERR_PROTOCOL, "not a MessagePack array");
    return GRADWEIR_OK;
}

static gradweir_status head_number(const msgpack_object_array *array, uint32_t i, const char *name,
                                   uint64_t high, uint64_t *value)
{
    const struct field field = {.name = name, .type = FIELD_U64, .max = high};
    if (i >= array->size)
        return fail(GRADWEIR_ERR_PROTOCOL, "the array ends before %s", name);
    return field_unpack(&array->ptr[i], &field, value);
}

static gradweir_status unpack_fields(const msgpack_object_array *array, uint32_t from,
                                     struct field_table table, void *base)
{
    for (uint32_t i = 0; i < table.count; i++)
        TRY(field_unpack(&array->ptr[from + i], &table.fields[i], base));
    return GRADWEIR_OK;
}

static gradweir_status decode_record(const msgpack_object_array *array, struct record *out)
{
    uint64_t kind, epoch, timeline;
    TRY(head_number(array, 0, "record kind", UINT32_MAX, &kind));
    TRY(head_number(array, 1, "epoch", UINT32_MAX, &epoch));
    TRY(head_number(array, 2, "timeline", UINT32_MAX, &timeline));
    TRY(head_number(array, 3, "index", UINT64_MAX, &out->index));
    TRY(head_number(array, 4, "previous", UINT64_MAX, &out->previous));
    const struct field_table table = record_fields((uint32_t)kind);
    if (!table.fields)
        return fail(GRADWEIR_ERR_PROTOCOL, "%llu is no kind of record", (unsigned long long)kind);
    if (array->size != RECORD_HEAD_ELEMENTS + table.count)
        return fail(GRADWEIR_ERR_PROTOCOL, "a %s record has %u elements, not %u",
                    record_name((uint32_t)kind), array->size, RECORD_HEAD_ELEMENTS + table.count);
    out->kind = (uint32_t)kind;
    out->epoch = (uint32_t)epoch;
    out->timeline = (uint32_t)timeline;
    TRY(unpack_fields(array, RECORD_HEAD_ELEMENTS, table, out));
    if (kind == RECORD_MAP && array->ptr[RECORD_HEAD_ELEMENTS].via.bin.size !=
                                  array->ptr[RECORD_HEAD_ELEMENTS + 1].via.bin.size)
        return fail(GRADWEIR_ERR_PROTOCOL, "a MAP has as many firsts as counts");
    return GRADWEIR_OK;
}

/* The zone may be that of the record's message: whose array, but not its bytes, is then gone. */
static gradweir_status read_record(msgpack_zone *zone, const uint8_t *bytes, size_t count,
                                   struct record *record)
{
    msgpack_object array;
    size_t used;
    if (count > RECORD_BYTES_MAX)
        return fail(GRADWEIR_ERR_PROTOCOL, "a record of %zu bytes: at most %d", count,
                    RECORD_BYTES_MAX);
    TRY(parse(zone, bytes, count, &array, &used));
    if (used != count)
        return fail(GRADWEIR_ERR_PROTOCOL, "%zu bytes are left over behind a record", count - used);
    return decode_record(&array.via.array, record);
}

gradweir_status record_decode(const uint8_t *bytes, size_t count, struct record *out)
{
    msgpack_zone zone;
    struct record record = {.kind = 0};
    if (!msgpack_zone_init(&zone, ZONE_BYTES))
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory to read a record");
    const gradweir_status status = read_record(&zone, bytes, count, &record);
    msgpack_zone_destroy(&zone);
    if (status == GRADWEIR_OK)
        *out = record;
    return status;
}

static gradweir_status terminated(const struct message *message)
{
    if (message->kind != MESSAGE_JOINED)
        return GRADWEIR_OK;
    for (uint32_t i = 0; i < message->joined.members_count; i++)
        if (!memchr(message->joined.members[i].address, 0, ADDRESS_MAX))
            return fail(GRADWEIR_ERR_PROTOCOL, "member %u has an address without an end", i);
    return GRADWEIR_OK;
}

static gradweir_status decode_body(msgpack_zone *zone, const msgpack_object_array *array,
                                   struct message *message)
{
    const struct field_table table = message_fields(message->kind);
    const bool is_record = message->kind == MESSAGE_RECORD;
    if (array->size != HEAD_ELEMENTS + table.count + is_record)
        return fail(GRADWEIR_ERR_PROTOCOL, "a %s has %u elements, not %u",
                    message_name(message->kind), array->size,
                    HEAD_ELEMENTS + table.count + is_record);
    if (!is_record)
        return unpack_fields(array, HEAD_ELEMENTS, table, message);
    const msgpack_object *body = &array->ptr[HEAD_ELEMENTS];
    if (body->type != MSGPACK_OBJECT_BIN)
        return fail(GRADWEIR_ERR_PROTOCOL, "a record is binary");
    return read_record(zone, (const uint8_t *)body->via.bin.ptr, body->via.bin.size,
                       &message->record);
}

gradweir_status wire_decode(struct wire_decoder *decoder, const uint8_t *bytes, size_t count,
                            size_t *used, struct message *out)
{
    msgpack_object array;
    uint64_t kind, epoch, timeline;
    size_t length;
    TRY(parse(&decoder->zone, bytes, count, &array, &length));
    TRY(head_number(&array.via.array, 0, "kind", UINT32_MAX, &kind));
    TRY(head_number(&array.via.array, 1, "epoch", UINT32_MAX, &epoch));
    TRY(head_number(&array.via.array, 2, "timeline", UINT32_MAX, &timeline));
    if (message_name((uint32_t)kind)[0] == '?')
        return fail(GRADWEIR_ERR_PROTOCOL, "%llu is no kind of message", (unsigned long long)kind);
    struct message message = {
        .kind = (uint32_t)kind, .epoch = (uint32_t)epoch, .timeline = (uint32_t)timeline};
    TRY(decode_body(&decoder->zone, &array.via.array, &message));
    TRY(terminated(&message));
    *out = message;
    *used = length;
    return GRADWEIR_OK;
}
