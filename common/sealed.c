/* A member's content for a new coordinator: written and read in one pass each. */
#include "common/sealed.h"

#include <string.h>

enum { MAGIC = 0x4c414553, VERSION = 1, HEAD_BYTES = 8 + 8 + 8 + 3 * 8 };
enum { LANDED_BYTES_MAX = 160, RECORD_OVERHEAD = 32 };

static void put(uint8_t *bytes, uint64_t value, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *bytes, unsigned count)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < count; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

size_t sealed_bytes_max(size_t layout_bytes, uint32_t records, uint32_t slots)
{
    return HEAD_BYTES + LEDGER_BYTES_MAX + layout_bytes +
           (size_t)records * (RECORD_BYTES_MAX + RECORD_OVERHEAD) +
           (size_t)slots * LANDED_BYTES_MAX;
}

void sealed_begin(struct sealed_writer *writer, const struct message_member *member,
                  const struct ledger *ledger, const uint8_t *layout, size_t layout_bytes)
{
    size_t ledger_bytes;
    ASSERT(writer->room >= HEAD_BYTES);
    const gradweir_status status =
        ledger_write(ledger, writer->bytes + HEAD_BYTES, writer->room - HEAD_BYTES, &ledger_bytes);
    ASSERT(status == GRADWEIR_OK);
    put(writer->bytes, MAGIC, 4);
    put(writer->bytes + 4, VERSION, 4);
    put(writer->bytes + 8, member->job, 8);
    put(writer->bytes + 16, member->shard, 4);
    put(writer->bytes + 20, member->members, 4);
    put(writer->bytes + 24, ledger_bytes, 8);
    put(writer->bytes + 32, layout_bytes, 8);
    writer->messages_at = HEAD_BYTES + ledger_bytes + layout_bytes;
    ASSERT(writer->messages_at <= writer->room);
    memcpy(writer->bytes + HEAD_BYTES + ledger_bytes, layout, layout_bytes);
    writer->used = writer->messages_at;
}

void sealed_add(struct sealed_writer *writer, const struct message *message)
{
    size_t written;
    const gradweir_status status =
        wire_encode(message, writer->bytes + writer->used, writer->room - writer->used, &written);
    ASSERT(status == GRADWEIR_OK);
    writer->used += written;
}

size_t sealed_end(struct sealed_writer *writer)
{
    put(writer->bytes + 40, writer->used - writer->messages_at, 8);
    return writer->used;
}

gradweir_status sealed_read(const uint8_t *bytes, size_t count, struct sealed_reader *reader)
{
    if (count < HEAD_BYTES || get(bytes, 4) != MAGIC || get(bytes + 4, 4) != VERSION)
        return fail(GRADWEIR_ERR_PROTOCOL, "%zu bytes are no sealed content of version %d", count,
                    VERSION);
    const uint64_t rest = count - HEAD_BYTES, ledger = get(bytes + 24, 8),
                   layout = get(bytes + 32, 8), messages = get(bytes + 40, 8);
    if (ledger > rest || layout > rest - ledger || messages != rest - ledger - layout)
        return fail(GRADWEIR_ERR_PROTOCOL, "a sealed content whose parts do not fill it");
    *reader = (struct sealed_reader){.job = get(bytes + 8, 8),
                                     .shard = (uint32_t)get(bytes + 16, 4),
                                     .members = (uint32_t)get(bytes + 20, 4),
                                     .ledger = bytes + HEAD_BYTES,
                                     .layout = bytes + HEAD_BYTES + ledger,
                                     .messages = bytes + HEAD_BYTES + ledger + layout,
                                     .ledger_bytes = (size_t)ledger,
                                     .layout_bytes = (size_t)layout,
                                     .messages_bytes = (size_t)messages};
    return GRADWEIR_OK;
}

gradweir_status sealed_next(struct sealed_reader *reader, struct wire_decoder *decoder,
                            struct message *message)
{
    size_t used;
    if (reader->messages_bytes == 0)
        return GRADWEIR_ERR_FULL;
    TRY(wire_decode(decoder, reader->messages, reader->messages_bytes, &used, message));
    if (message->kind != MESSAGE_RECORD && message->kind != MESSAGE_LANDED)
        return fail(GRADWEIR_ERR_PROTOCOL, "a %s in a sealed content", message_name(message->kind));
    reader->messages += used;
    reader->messages_bytes -= used;
    return GRADWEIR_OK;
}
