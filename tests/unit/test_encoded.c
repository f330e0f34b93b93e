/* Encoding, measure and checksum in one pass: bit by bit what one after the other gives, on every
 * instruction set, wherever the floats lie and whatever they are. */
#include "common/encoded.h"

#include "common/checksum.h"
#include "common/codec.h"
#include "common/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { N = 9 * 1024, SEEDS = 40 };

static const enum arithmetic_codec codecs[] = {ARITHMETIC_F32, ARITHMETIC_BF16, ARITHMETIC_F16,
                                               ARITHMETIC_INT8};

enum strange { NOTHING_STRANGE, NOT_FINITE, NEARLY_INFINITE };

/* As many exponents as seeds ask for, from none to all that there are: among them subnormals, ties
 * and, where strange, NaNs and infinities, or the last numbers before these. */
static float draw(struct random *random, enum strange strange)
{
    const uint32_t bits = (uint32_t)random_next(random);
    const uint32_t kind = (uint32_t)random_below(random, 64);
    if (kind == 0 && strange == NOT_FINITE)
        return element_float((bits & 0x80000000u) | 0x7f800000u |
                             (bits & 1u ? bits & 0x7fffffu : 0));
    if (kind == 1)
        return element_float(bits & 0x807fffffu); /* subnormal */
    if (kind == 2)
        return element_float((bits & 0xffff0000u & ~0x40000000u) | 0x8000u); /* a tie of bfloat16 */
    if (kind == 3)
        return 0.0f;
    if (kind == 4 && strange == NEARLY_INFINITE)
        return element_float((bits & 0x80000000u) | (0x7f7fffffu - (bits & 0x1fu)));
    return element_float((bits & 0x807fffffu) | (96u + (bits >> 23) % 40u) << 23);
}

struct outcome {
    _Alignas(64) float rest[N + 16];
    _Alignas(64) unsigned char to[4 * N + 64];
    struct arithmetic_running running;
    uint32_t crc;
};

/* Two pieces in a row, the first of them whole. */
static void in_one_pass(const struct arithmetic *set, const struct encoded *what, size_t n,
                        struct outcome *out)
{
    const size_t first = n / 2 / CODEC_BLOCK * CODEC_BLOCK;
    struct encoded piece = *what;
    piece.arithmetic = set;
    out->crc = encoded_sum(&piece, first, 77, &out->running);
    piece.from += first;
    piece.to = (unsigned char *)piece.to + codec_bytes(piece.codec, first);
    piece.rest = piece.rest ? piece.rest + first : NULL;
    out->crc = encoded_sum(&piece, n - first, out->crc, &out->running);
}

static void one_by_one(const struct encoded *what, size_t n, struct outcome *out)
{
    arithmetic_scalar.encode_on(what->codec, what->from, n, what->rest, what->to, &out->running);
    out->crc = checksum_crc32c(77, what->to, codec_bytes(what->codec, n));
}

static bool same_sums(const struct arithmetic_running *a, const struct arithmetic_running *b)
{
    for (size_t i = 0; i < ARITHMETIC_LANES; i++)
        if (memcmp(&a->lanes[i], &b->lanes[i], sizeof a->lanes[i]) != 0 &&
            !(isnan(a->lanes[i]) && isnan(b->lanes[i])))
            return false;
    return a->largest_bits == b->largest_bits ||
           (!arithmetic_finite(a->largest_bits) && !arithmetic_finite(b->largest_bits));
}

static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

static void expect_same(uint64_t seed, enum arithmetic_codec codec, bool owes)
{
    static float from[N + 16], rest[N + 16];
    static struct outcome expected, got;
    struct random random;
    random_init(&random, seed);
    const enum strange strange = (enum strange)(seed % 3);
    const size_t n = 1 + random_below(&random, N), shift = random_below(&random, 16);
    for (size_t i = 0; i < N + 16; i++) {
        from[i] = draw(&random, strange);
        rest[i] = 0.1f * draw(&random, NOTHING_STRANGE);
    }
    for (size_t i = 0; arithmetic_at(i); i++) {
        memset(&expected, 0, sizeof expected);
        memset(&got, 0, sizeof got);
        memcpy(expected.rest, rest, sizeof rest);
        memcpy(got.rest, rest, sizeof rest);
        one_by_one(&(struct encoded){.codec = codec,
                                     .from = from + shift,
                                     .rest = owes ? expected.rest + shift : NULL,
                                     .to = expected.to + 4 * shift},
                   n, &expected);
        in_one_pass(arithmetic_at(i),
                    &(struct encoded){.codec = codec,
                                      .from = from + shift,
                                      .rest = owes ? got.rest + shift : NULL,
                                      .to = got.to + 4 * shift},
                    n, &got);
        cr_assert_eq(memcmp(expected.to, got.to, sizeof got.to), 0, "%s %s, seed %lu, %zu: bytes",
                     arithmetic_at(i)->name, codec_name(codec), seed, n);
        cr_assert_eq(memcmp(expected.rest, got.rest, sizeof got.rest), 0, "%s %s, seed %lu: rest",
                     arithmetic_at(i)->name, codec_name(codec), seed);
        cr_assert(all_finite(got.rest, N + 16), "%s %s, seed %lu", arithmetic_at(i)->name,
                  codec_name(codec), seed);
        cr_assert_eq(expected.crc, got.crc, "%s %s, seed %lu: sum", arithmetic_at(i)->name,
                     codec_name(codec), seed);
        cr_assert(same_sums(&expected.running, &got.running), "%s %s, seed %lu: measure",
                  arithmetic_at(i)->name, codec_name(codec), seed);
    }
}

Test(encoded, one_pass_gives_the_bits_of_one_thing_after_the_other)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        for (size_t k = 0; k < sizeof codecs / sizeof *codecs; k++) {
            expect_same(seed, codecs[k], false);
            expect_same(seed, codecs[k], true);
        }
}

/* Every length about the borders of what is taken at a time, each strange element on its own. */
Test(encoded, what_is_not_finite_is_seen_wherever_it_is)
{
    static float from[2048];
    static unsigned char to[4 * 2048];
    for (size_t k = 0; k < sizeof codecs / sizeof *codecs; k++)
        for (size_t i = 0; i < 2048; i += i % 5 == 0 ? 31 : 7) {
            struct arithmetic_running running = {.largest_bits = 0};
            const struct encoded what = {
                .arithmetic = arithmetic_choose(NULL), .codec = codecs[k], .from = from, .to = to};
            from[i] = element_float(i % 2 ? 0x7f800001u : 0xff800000u);
            (void)encoded_sum(&what, 2048, 0, &running);
            cr_expect(!arithmetic_finite(running.largest_bits), "%s, element %zu",
                      codec_name(codecs[k]), i);
            cr_expect_eq(codec_first_not_finite(codecs[k], to, 2048), i);
            from[i] = 0;
        }
}
