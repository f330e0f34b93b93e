/* CRC32C (Castagnoli) in pieces that anybody may take: what a GPU's threads and the processor
 * share.
 *
 * A CRC is the remainder of a polynomial over GF(2), highest power in the lowest bit, and so it is
 * linear: zeros ahead of a text change nothing in a register that begins at 0, and bytes behind it
 * multiply the register by x^(8 bytes). Thus a text can be read by many at once: its words go to
 * lanes by turns, lane l adds word after word of its own, each time multiplied by x^(32 lanes), and
 * in the end lane l counts x^(32 (lanes - l)) times (M. Adler's crc32_combine in zlib; K. Kadatch
 * and B. Jenkins, "Everything we know about CRC but afraid to forget", 2010). */
#ifndef GRADWEIR_COMMON_ELEMENT_CHECKSUM_H
#define GRADWEIR_COMMON_ELEMENT_CHECKSUM_H

#include "common/arithmetic_element.h"

/* The product of two remainders. */
ELEMENT uint32_t element_crc_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int i = 0; i < 32; i++) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = (b >> 1) ^ (0x82f63b78u & (0u - (b & 1u)));
    }
    return product;
}

/* x^(8 bytes). */
ELEMENT uint32_t element_crc_power(uint64_t bytes)
{
    uint32_t power = 1u << 23, product = 1u << 31; /* x^8, 1 */
    for (; bytes != 0; bytes >>= 1) {
        if ((bytes & 1u) != 0)
            product = element_crc_multiply(power, product);
        power = element_crc_multiply(power, power);
    }
    return product;
}

/* Two texts in a row, from their registers or their sums; gap: x^(8 bytes of b). */
ELEMENT uint32_t element_crc_join(uint32_t a, uint32_t b, uint32_t gap)
{
    return element_crc_multiply(gap, a) ^ b;
}

/* A register × x^k from four looks into a table: entry `byte` of row `which`, where ahead is x^k.
 */
#define ELEMENT_CRC_ROWS    4
#define ELEMENT_CRC_COLUMNS 256

ELEMENT uint32_t element_crc_entry(uint32_t ahead, uint32_t which, uint32_t byte)
{
    return element_crc_multiply(ahead, byte << (8u * which));
}

ELEMENT uint32_t element_crc_ahead(const uint32_t (*table)[ELEMENT_CRC_COLUMNS], uint32_t crc)
{
    return table[0][crc & 0xffu] ^ table[1][crc >> 8 & 0xffu] ^ table[2][crc >> 16 & 0xffu] ^
           table[3][crc >> 24];
}

/* From a register that began at 0, and had its last word added but not yet multiplied by x^32, to
 * the sum of that text; gap: x^(8 bytes of it). word: x^32. */
ELEMENT uint32_t element_crc_sum(uint32_t crc, uint32_t word, uint32_t gap)
{
    return ~(element_crc_multiply(word, crc) ^ element_crc_multiply(gap, 0xffffffffu));
}

#endif
