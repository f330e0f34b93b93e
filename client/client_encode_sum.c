/* The checksum of a piece of a body, from those of the blocks that were taken when it was made. */
#include "client/client_direct.h"

#include "common/checksum.h"

/* Of whole blocks, joined. What is left of a block at either end is read again: chunks of int8 cut
 * a block each. */
static uint32_t join(const struct gradweir_client *client, const struct sums_of_body *sums,
                     const uint8_t *body, uint64_t offset, uint64_t end)
{
    const struct checksum_joint *joint = &client->joint;
    const uint64_t block = sums->block_bytes, stop = end < sums->bytes ? end : sums->bytes;
    const uint64_t begin = (offset + block - 1) / block * block;
    uint64_t at = begin < stop ? begin : stop;
    uint32_t crc = checksum_crc32c(0, body + offset, at - offset);
    const bool known = block == joint->bytes; /* else of another codec than what is pushed now */
    const uint32_t gap = known ? 0 : checksum_crc32c_gap(block);
    for (; at + block <= stop; at += block)
        crc = known ? checksum_joint_join(joint, crc, sums->pieces[at / block])
                    : checksum_crc32c_join(crc, sums->pieces[at / block], gap);
    if (at < stop && stop == sums->bytes) { /* the model's last block may be short */
        crc = checksum_crc32c_join(crc, sums->pieces[at / block], checksum_crc32c_gap(stop - at));
        at = stop;
    }
    return checksum_crc32c(crc, body + at, end - at);
}

gradweir_status client_encode_crc(const struct gradweir_client *client, uint32_t buffer,
                                  uint64_t offset, uint64_t length, uint32_t *crc)
{
    const struct sums_of_body *sums = &client->sums[buffer];
    const uint64_t end = offset + length, block = sums->block_bytes;
    const uint8_t *body = client->lent[buffer] ? client->lent[buffer] : client->buffers[buffer];
    uint32_t memory;
    /* What lies behind the elements is in host memory, whatever the path. */
    const bool here = block == 0 || offset >= sums->bytes;
    const bool cut = !here && (offset % block || (end % block && end < sums->bytes));
    if (cut && client_direct_body(client, buffer, &memory))
        return client_direct_crc(client, buffer, offset, length, crc);
    *crc = here ? checksum_crc32c(0, body + offset, length) : join(client, sums, body, offset, end);
    return GRADWEIR_OK;
}
