/* Checksums of bodies that answer pulls, taken once a version: what leaves a parameter slot never
 * changes while it is that version. Bodies made for one pull are summed each time. */
#include "server/host_shard_loop.h"

#include "common/checksum.h"

uint32_t shard_loop_reply_sum(struct shard_loop *loop, const struct head_parameters *head,
                              uint64_t offset, uint64_t length)
{
    const void *body = shard_address(loop->shard, offset);
    if (length == 0 || !shard_is_parameters(loop->shard, offset))
        return checksum_crc32c(0, body, length);
    const uint64_t mixed = (offset ^ length << 40) * UINT64_C(0x9e3779b97f4a7c15);
    struct shard_reply_sum *sum = &loop->reply_sums[(mixed >> 32) % REPLY_SUMS];
    if (sum->offset != offset || sum->length != length || sum->version != head->version ||
        sum->timeline != head->timeline)
        *sum = (struct shard_reply_sum){.offset = offset,
                                        .length = length,
                                        .version = head->version,
                                        .timeline = head->timeline,
                                        .crc = checksum_crc32c(0, body, length)};
    return sum->crc;
}
