/* What a member tells a new coordinator (CONTENT_SEALED): everything it holds but the floats, so
 * that a coordinator needs no memory of its own. As bytes, little-endian:
 *
 *   magic, version | job | shard, members | lengths of the three that follow
 *   the ledger (ledger_write) | the layout (model_encode) | messages, one behind the other:
 *   RECORD for each record that its ring still has, oldest first, then LANDED for each gradient
 *   that has landed whole and whose slot is not closing
 *
 * Incomplete gradients are left out: their slots close, and their workers send them again. */
#ifndef GRADWEIR_COMMON_SEALED_H
#define GRADWEIR_COMMON_SEALED_H

#include "common/ledger.h"
#include "common/wire.h"

struct sealed_writer {
    uint8_t *bytes;
    size_t room, used;
    size_t messages_at;
};

/* Room for a content with so many records and slots. */
size_t sealed_bytes_max(size_t layout_bytes, uint32_t records, uint32_t slots);

/* Begins a content; then sealed_add for each message, then sealed_end, which gives the count of
 * bytes. There must be room (ASSERT). */
void sealed_begin(struct sealed_writer *writer, const struct message_member *member,
                  const struct ledger *ledger, const uint8_t *layout, size_t layout_bytes);
void sealed_add(struct sealed_writer *writer, const struct message *message);
size_t sealed_end(struct sealed_writer *writer);

/* A content that came, borrowed from its bytes. */
struct sealed_reader {
    uint64_t job;
    uint32_t shard, members;
    const uint8_t *ledger, *layout, *messages;
    size_t ledger_bytes, layout_bytes, messages_bytes;
};

/* ERR_PROTOCOL when the parts are not as long as they say. Ledger, layout and messages are checked
 * by whoever reads them. */
gradweir_status sealed_read(const uint8_t *bytes, size_t count, struct sealed_reader *reader);

/* The next message; ERR_PROTOCOL when it is neither RECORD nor LANDED. ERR_FULL: there is none. */
gradweir_status sealed_next(struct sealed_reader *reader, struct wire_decoder *decoder,
                            struct message *message);

#endif
