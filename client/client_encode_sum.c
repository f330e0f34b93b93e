/* The checksum of a piece of a body, from those of the blocks that were taken when it was made. */
#include "client/client_direct.h"

#include "common/checksum.h"

uint32_t client_encode_crc(const struct gradweir_client *client, uint32_t buffer, uint64_t offset,
                           uint64_t length)
{
    const struct sums_of_body *sums = &client->sums[buffer];
    const uint64_t end = offset + length, block = sums->block_bytes;
    const uint8_t *body = client->lent[buffer] ? client->lent[buffer] : client->buffers[buffer];
    uint32_t memory;
    /* What lies behind the elements is in host memory, whatever the path. */
    if (block == 0 || offset >= sums->bytes)
        return checksum_crc32c(0, body + offset, length);
    const bool cut = offset % block || (end % block && end < sums->bytes);
    if (cut && client_direct_body(client, buffer, &memory))
        return client_direct_crc(client, buffer, offset, length);
    if (cut)
        return checksum_crc32c(0, body + offset, length);
    const uint64_t stop = end < sums->bytes ? end : sums->bytes;
    const uint32_t gap = checksum_crc32c_gap(block);
    uint32_t crc = 0;
    uint64_t at = offset;
    for (; at + block <= stop; at += block)
        crc = checksum_crc32c_join(crc, sums->pieces[at / block], gap);
    if (at < stop) /* the model's last block may be short */
        crc = checksum_crc32c_join(crc, sums->pieces[at / block], checksum_crc32c_gap(stop - at));
    return end > stop ? checksum_crc32c(crc, body + stop, end - stop) : crc;
}
