/* A frame from anybody: whatever is accepted is written again as the same bytes. A libFuzzer entry;
 * fuzz_replay.c runs it over its corpus in the normal suite. */
#include "common/wire.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static struct wire_decoder *decoder;

static void check_record(const uint8_t *bytes, size_t count)
{
    static struct record record;
    uint8_t again[RECORD_BYTES_MAX];
    if (record_decode(bytes, count, &record) != GRADWEIR_OK)
        return;
    ASSERT(record_encode(&record, again) == count);
    ASSERT(memcmp(again, bytes, count) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static struct message message;
    static uint8_t again[FRAME_BYTES_MAX];
    size_t used, written;
    if (!decoder)
        ASSERT(wire_decoder_new(&decoder) == GRADWEIR_OK);
    check_record(bytes, count);
    while (count && wire_decode(decoder, bytes, count, &used, &message) == GRADWEIR_OK) {
        ASSERT(used > 0 && used <= count);
        ASSERT(wire_encode(&message, again, sizeof again, &written) == GRADWEIR_OK);
        ASSERT(written == used && memcmp(again, bytes, used) == 0);
        bytes += used;
        count -= used;
    }
    return 0;
}
