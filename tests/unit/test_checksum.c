/* Sums meet published values, go on where they stopped, and do not depend on the cut into shards.
 */
#include "common/checksum.h"
#include "common/element_checksum.h"
#include "common/model.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

Test(checksum, crc32c_meets_the_published_values)
{
    uint8_t bytes[32];
    cr_expect_eq(checksum_crc32c(0, "123456789", 9), 0xe3069283u);
    cr_expect_eq(checksum_crc32c(0, "", 0), 0u);
    memset(bytes, 0, sizeof bytes); /* RFC 3720, B.4 */
    cr_expect_eq(checksum_crc32c(0, bytes, sizeof bytes), 0x8a9136aau);
    memset(bytes, 0xff, sizeof bytes);
    cr_expect_eq(checksum_crc32c(0, bytes, sizeof bytes), 0x62a8ab43u);
}

Test(checksum, crc32c_of_parts_joins_to_that_of_the_whole)
{
    static unsigned char bytes[70000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    const size_t cuts[] = {0, 1, 7, 64, 4096, 65536, 69999, 70000};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        const size_t rest = sizeof bytes - cuts[i];
        const uint32_t a = checksum_crc32c(0, bytes, cuts[i]);
        const uint32_t b = checksum_crc32c(0, bytes + cuts[i], rest);
        struct checksum_joint joint;
        checksum_joint_make(rest, &joint);
        cr_expect_eq(checksum_joint_join(&joint, a, b), checksum_crc32c(0, bytes, sizeof bytes));
        cr_expect_eq(checksum_crc32c_join(a, b, checksum_crc32c_gap(rest)),
                     checksum_crc32c(0, bytes, sizeof bytes), "cut at %zu", cuts[i]);
    }
}

Test(checksum, crc32c_goes_on_at_any_cut)
{
    const char *text = "The window is the last W admitted gradients; every S of them make a step.";
    const size_t n = strlen(text);
    const uint32_t whole = checksum_crc32c(0, text, n);
    for (size_t cut = 0; cut <= n; cut++)
        cr_expect_eq(checksum_crc32c(checksum_crc32c(0, text, cut), text + cut, n - cut), whole);
    cr_expect_neq(checksum_crc32c(0, text, n - 1), whole);
}

/* As a GPU does it (gpu/kernels_checksum.cu), lane by lane. */
static uint32_t by_lanes(const unsigned char *text, size_t n, uint32_t lanes)
{
    static uint32_t table[ELEMENT_CRC_ROWS][ELEMENT_CRC_COLUMNS];
    const size_t round = lanes * sizeof(uint32_t), skip = (n + round - 1) / round * round - n;
    const uint32_t word = element_crc_power(sizeof(uint32_t)), ahead = element_crc_power(round);
    uint32_t joined = 0;
    for (uint32_t i = 0; i < ELEMENT_CRC_ROWS * ELEMENT_CRC_COLUMNS; i++)
        table[i / ELEMENT_CRC_COLUMNS][i % ELEMENT_CRC_COLUMNS] =
            element_crc_entry(ahead, i / ELEMENT_CRC_COLUMNS, i % ELEMENT_CRC_COLUMNS);
    for (uint32_t lane = 0; lane < lanes; lane++) {
        uint32_t crc = 0;
        for (size_t at = lane * sizeof(uint32_t); at < n + skip; at += round) {
            uint32_t mine = 0;
            for (size_t k = 0; k < 4; k++)
                mine |= at + k < skip ? 0 : (uint32_t)text[at + k - skip] << (8 * k);
            crc = element_crc_ahead((const uint32_t(*)[ELEMENT_CRC_COLUMNS])table, crc) ^ mine;
        }
        joined = element_crc_join(joined, crc, word);
    }
    return element_crc_sum(joined, word, element_crc_power(n));
}

Test(checksum, crc32c_by_lanes_is_crc32c_whatever_the_length_and_the_lanes)
{
    unsigned char text[3000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (unsigned char)(i * 167 + i / 251 + 13);
    for (size_t n = 1; n <= sizeof text; n += n < 70 ? 1 : 97)
        for (uint32_t lanes = 1; lanes <= 256; lanes *= 4)
            cr_assert_eq(by_lanes(text, n, lanes), checksum_crc32c(0, text, n), "%zu by %u", n,
                         lanes);
}

Test(checksum, hash64_is_xxh3)
{
    cr_expect_eq(checksum_hash64(0, "", 0), 0x2d06800538d394c2u);
    cr_expect_neq(checksum_hash64(1, "a", 1), checksum_hash64(0, "a", 1));
}

Test(checksum, the_digest_of_a_model_does_not_depend_on_its_shards)
{
    const size_t n = 6 * MODEL_BLOCK + 77, blocks = 7;
    float *model = malloc(n * sizeof *model);
    cr_assert(model != NULL);
    for (size_t i = 0; i < n; i++)
        model[i] = (float)i * 0.5f;
    uint64_t whole[8], parts[8];
    cr_assert_eq(checksum_blocks(model, n, sizeof *model, MODEL_BLOCK, whole), blocks);
    for (size_t shards = 2; shards <= 7; shards++) {
        size_t filled = 0;
        for (size_t s = 0; s < shards; s++) {
            const size_t first = blocks * s / shards, last = blocks * (s + 1) / shards;
            const size_t begin = first * MODEL_BLOCK;
            const size_t end = s + 1 == shards ? n : last * MODEL_BLOCK;
            filled += checksum_blocks(model + begin, end - begin, sizeof *model, MODEL_BLOCK,
                                      parts + filled);
        }
        cr_expect_eq(filled, blocks);
        cr_expect_eq(checksum_combine(parts, filled), checksum_combine(whole, blocks));
    }
    model[n - 1] += 1.0f;
    checksum_blocks(model, n, sizeof *model, MODEL_BLOCK, parts);
    cr_expect_neq(checksum_combine(parts, blocks), checksum_combine(whole, blocks));
    free(model);
}
