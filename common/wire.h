/* Messages as bytes: MessagePack arrays of fixed length per kind, [kind, epoch, timeline, fields…].
 * Several messages may stand in one frame, one behind the other. Nothing that arrives is trusted: a
 * scan bounds depth, nodes and every length before msgpack-c sees a byte, then each field must have
 * exactly its type, its size, its bounds and its shortest form: what is accepted is written again
 * as the same bytes. Nothing is allocated per message.
 *
 *   wire.c         frames, messages
 *   wire_scan.c    the scan
 *   wire_fields.c  one field in, one field out, from a table row
 *   wire_tables.c  which fields each kind has: the only description of the format
 *   wire_content.c long contents as pages */
#ifndef GRADWEIR_COMMON_WIRE_H
#define GRADWEIR_COMMON_WIRE_H

#include "common/message.h"

#include <stdbool.h>

enum { MESSAGE_BYTES_MAX = 48 << 10, FRAME_BYTES_MAX = 64 << 10 };

struct wire_decoder;
gradweir_status wire_decoder_new(struct wire_decoder **decoder);
void wire_decoder_free(struct wire_decoder *decoder);

/* Appends one message. ERR_FULL: it does not fit in `room`, nothing was written. A text that is not
 * terminated, a number, enum or count out of its bounds, or a float32 that is NaN is our own
 * mistake (ASSERT). */
gradweir_status wire_encode(const struct message *message, uint8_t *bytes, size_t room,
                            size_t *written);

/* Reads the first message of `bytes` and tells how many bytes it took. ERR_PROTOCOL with the
 * reason; out and used only on success. A page's data points into `bytes`. */
gradweir_status wire_decode(struct wire_decoder *decoder, const uint8_t *bytes, size_t count,
                            size_t *used, struct message *out);

/* Long contents. */
uint32_t content_pages(size_t count);
void content_page(uint32_t content, const uint8_t *bytes, size_t count, uint32_t page,
                  struct message_page *out);

/* Puts pages together, in order; room for `max` bytes is taken when the first page says how many.
 */
struct content_assembler;
gradweir_status content_assembler_new(size_t max, struct content_assembler **assembler);
void content_assembler_free(struct content_assembler *assembler);

/* ERR_PROTOCOL for a page that does not follow; the assembler then starts anew with the next page
 * 0. */
gradweir_status content_add(struct content_assembler *assembler, const struct message_page *page);
bool content_whole(const struct content_assembler *assembler);
const uint8_t *content_bytes(const struct content_assembler *assembler);
size_t content_count(const struct content_assembler *assembler);

#endif
