/* Sums over bytes: CRC32C for what travels, XXH3 for names and digests. The only file that knows
 * isa-l and xxhash. Neither is a defence against an adversary; the control plane's authentication
 * is. */
#ifndef GRADWEIR_COMMON_CHECKSUM_H
#define GRADWEIR_COMMON_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* CRC32C (Castagnoli). seed 0 starts; to go on, pass the last result:
 * crc32c(crc32c(0, a), b) is the sum over a and b in a row. */
uint32_t checksum_crc32c(uint32_t seed, const void *data, size_t bytes);

/* Joins sums that were taken apart: join(crc32c(0, a), crc32c(0, b), gap(bytes of b)) is the sum
 * over a and b in a row, without reading either again. */
uint32_t checksum_crc32c_gap(uint64_t bytes);
uint32_t checksum_crc32c_join(uint32_t a, uint32_t b, uint32_t gap);

/* The same where many parts have one length, `bytes`: a tenth of the time, by a table. */
struct checksum_joint {
    uint64_t bytes;
    uint32_t table[4][256];
};

void checksum_joint_make(uint64_t bytes, struct checksum_joint *joint);
uint32_t checksum_joint_join(const struct checksum_joint *joint, uint32_t a, uint32_t b);

/* XXH3, 64 bits. */
uint64_t checksum_hash64(uint64_t seed, const void *data, size_t bytes);

/* A model's (or gradient's) digest does not depend on how it is cut into shards: each block of
 * the model (model->block elements) has its own XXH3 (seed 0), and the digest is the XXH3 (seed 0)
 * over the array of these as 64-bit little-endian numbers in block order. */

/* Fills digests[0 .. blocks) for `elements` elements of element_bytes each that start at a block
 * border. The last block may be short. Returns the number of blocks. */
size_t checksum_blocks(const void *data, uint64_t elements, size_t element_bytes, uint64_t block,
                       uint64_t *digests);

/* The digest of the whole from the digests of its blocks. */
uint64_t checksum_combine(const uint64_t *digests, size_t blocks);

#endif
