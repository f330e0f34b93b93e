/* One entry of a recording's file at a time. */
#include "server/recording_scan.h"

#include "common/checksum.h"

#include <string.h>

static enum recording_end end_of(uint64_t number)
{
    const bool known =
        number == RECORDING_FULL || number == RECORDING_CLOSED || number == RECORDING_BROKEN;
    return known ? (enum recording_end)number : RECORDING_CUT;
}

gradweir_status recording_scan_record(const uint8_t *bytes, size_t count, size_t at, size_t *next,
                                      struct record *record, enum recording_end *end)
{
    uint32_t head[2];
    const size_t rest = count - at;
    *end = RECORDING_CUT;
    if (rest < sizeof head)
        return GRADWEIR_ERR_AGAIN;
    memcpy(head, bytes + at, sizeof head);
    if (head[0] == 0) {
        *end = end_of(head[1]);
        return GRADWEIR_ERR_AGAIN;
    }
    if (head[0] > RECORD_BYTES_MAX)
        return fail(
            GRADWEIR_ERR_CORRUPT,
            "log.records: the record at byte %zu says it has %u bytes, at most %d are allowed", at,
            head[0], RECORD_BYTES_MAX);
    if (head[0] > rest - sizeof head)
        return GRADWEIR_ERR_AGAIN;
    if (checksum_crc32c(0, bytes + at + sizeof head, head[0]) != head[1])
        return fail(GRADWEIR_ERR_CORRUPT,
                    "log.records: the record at byte %zu has a wrong checksum", at);
    if (record_decode(bytes + at + sizeof head, head[0], record) != GRADWEIR_OK)
        return fail(GRADWEIR_ERR_CORRUPT, "log.records: the record at byte %zu: %s", at,
                    fail_reason());
    *next = at + sizeof head + head[0];
    return GRADWEIR_OK;
}

gradweir_status recording_scan_body(const uint8_t *bytes, size_t count, size_t at, size_t *next,
                                    uint64_t *index, const struct recording_lengths *lengths,
                                    enum recording_end *end)
{
    uint64_t head[3];
    const size_t rest = count - at;
    *end = RECORDING_CUT;
    if (rest < sizeof head)
        return GRADWEIR_ERR_AGAIN;
    memcpy(head, bytes + at, sizeof head);
    if (head[0] == UINT64_MAX) {
        *end = end_of(head[1]);
        return GRADWEIR_ERR_AGAIN;
    }
    if (head[1] != lengths->gradient && head[1] != lengths->first)
        return fail(GRADWEIR_ERR_CORRUPT,
                    "the body at byte %zu says it has %llu bytes, the layout gives %llu", at,
                    (unsigned long long)head[1], (unsigned long long)lengths->gradient);
    if (head[1] > rest - sizeof head)
        return GRADWEIR_ERR_AGAIN;
    *index = head[0];
    *next = at + sizeof head + (size_t)head[1];
    return GRADWEIR_OK;
}
