/* What a member tells a new coordinator: whatever is accepted of the ledger is written again as the
 * same bytes, and its messages are read to their end. */
#include "common/sealed.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static struct wire_decoder *decoder;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static struct ledger ledger;
    static struct message message;
    static uint8_t again[LEDGER_BYTES_MAX];
    struct sealed_reader reader;
    size_t used;
    if (!decoder)
        ASSERT(wire_decoder_new(&decoder) == GRADWEIR_OK);
    if (sealed_read(bytes, count, &reader) != GRADWEIR_OK)
        return 0;
    if (ledger_read(reader.ledger, reader.ledger_bytes, &ledger) == GRADWEIR_OK) {
        ASSERT(ledger_write(&ledger, again, sizeof again, &used) == GRADWEIR_OK);
        ASSERT(used == reader.ledger_bytes && memcmp(again, reader.ledger, used) == 0);
    }
    while (sealed_next(&reader, decoder, &message) == GRADWEIR_OK)
        ASSERT(message.kind == MESSAGE_RECORD || message.kind == MESSAGE_LANDED);
    return 0;
}
