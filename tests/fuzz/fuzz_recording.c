/* A log.records from anybody: it is read entry by entry and folded, as replay and blame do, and
 * what makes no sense is refused. Checksums are made right first, else nothing would come past
 * them. The same bytes are taken for a file of bodies too. A libFuzzer entry; fuzz_replay.c runs it
 * over its corpus in the normal suite. */
#include "common/checksum.h"
#include "common/ledger.h"
#include "server/recording_scan.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void mend_checksum(uint8_t *bytes, size_t count, size_t at)
{
    uint32_t head[2];
    if (count - at < sizeof head)
        return;
    memcpy(head, bytes + at, sizeof head);
    if (head[0] > count - at - sizeof head)
        return;
    head[1] = head[0] ? checksum_crc32c(0, bytes + at + sizeof head, head[0]) : head[1];
    memcpy(bytes + at, head, sizeof head);
}

static void fold(uint8_t *bytes, size_t count)
{
    static struct ledger ledger;
    static struct record record;
    enum recording_end end;
    ledger_init(&ledger);
    for (size_t at = RECORDING_LOG_HEAD, next = 0; at <= count; at = next) {
        mend_checksum(bytes, count, at);
        if (recording_scan_record(bytes, count, at, &next, &record, &end) != GRADWEIR_OK)
            return;
        ASSERT(next > at && next <= count && end == RECORDING_CUT);
        if (ledger_apply(&ledger, &record) != GRADWEIR_OK)
            return;
    }
}

static void walk_bodies(const uint8_t *bytes, size_t count)
{
    const struct recording_lengths lengths = {.gradient = 64, .first = 100};
    enum recording_end end;
    uint64_t index;
    for (size_t at = 0, next = 0; at <= count; at = next) {
        if (recording_scan_body(bytes, count, at, &next, &index, &lengths, &end) != GRADWEIR_OK)
            return;
        const size_t length = next - at - RECORDING_BODY_HEAD;
        ASSERT((length == 64 || length == 100) && next <= count);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    uint8_t *copy = malloc(count + !count);
    ASSERT(copy);
    memcpy(copy, bytes, count);
    fold(copy, count);
    walk_bodies(copy, count);
    free(copy);
    return 0;
}
