/* Sums over bytes by isa-l and xxhash, cut and seeded as checksum.h says. */
#include "common/checksum.h"

#include "common/element_checksum.h"

#include <assert.h>
#include <isa-l/crc.h>
#include <xxhash.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "digests are defined over little-endian numbers; a big-endian machine needs a swap here"
#endif

uint32_t checksum_crc32c(uint32_t seed, const void *data, size_t bytes)
{
    const size_t piece_max = (size_t)1 << 30; /* isa-l takes an int */
    uintptr_t at =
        (uintptr_t)data; /* and memory that it does not promise to leave alone, but does */
    uint32_t sum = ~seed;
    while (bytes > 0) {
        const size_t piece = bytes < piece_max ? bytes : piece_max;
        sum = crc32_iscsi((unsigned char *)at, (int)piece, sum);
        at += piece;
        bytes -= piece;
    }
    return ~sum;
}

uint32_t checksum_crc32c_gap(uint64_t bytes)
{
    return element_crc_power(bytes);
}

uint32_t checksum_crc32c_join(uint32_t a, uint32_t b, uint32_t gap)
{
    return element_crc_join(a, b, gap);
}

static_assert(ELEMENT_CRC_ROWS == 4 && ELEMENT_CRC_COLUMNS == 256, "a joint's table");

void checksum_joint_make(uint64_t bytes, struct checksum_joint *joint)
{
    const uint32_t gap = checksum_crc32c_gap(bytes);
    joint->bytes = bytes;
    for (uint32_t row = 0; row < ELEMENT_CRC_ROWS; row++)
        for (uint32_t column = 0; column < ELEMENT_CRC_COLUMNS; column++)
            joint->table[row][column] = element_crc_entry(gap, row, column);
}

uint32_t checksum_joint_join(const struct checksum_joint *joint, uint32_t a, uint32_t b)
{
    return element_crc_ahead(joint->table, a) ^ b;
}

uint64_t checksum_hash64(uint64_t seed, const void *data, size_t bytes)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

size_t checksum_blocks(const void *data, uint64_t elements, size_t element_bytes, uint64_t block,
                       uint64_t *digests)
{
    const unsigned char *at = data;
    size_t blocks = 0;
    while (elements > 0) {
        const uint64_t piece = elements < block ? elements : block;
        digests[blocks++] = checksum_hash64(0, at, (size_t)piece * element_bytes);
        at += (size_t)piece * element_bytes;
        elements -= piece;
    }
    return blocks;
}

uint64_t checksum_combine(const uint64_t *digests, size_t blocks)
{
    return checksum_hash64(0, digests, blocks * sizeof *digests);
}
