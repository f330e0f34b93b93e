/* What every device backend promises of encodings: bytes, sums, magnitudes and checksums of the
 * definition, whatever the codec, the length and the pieces. */
#include "common/checksum.h"
#include "common/codec.h"
#include "tests/unit/device_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { N_MAX = 3 * ARITHMETIC_BLOCK + 777, PIECES_MAX = N_MAX / 256 + 1 };

static float *chance_floats(size_t n, uint32_t seed)
{
    float *x = malloc(n * sizeof *x);
    cr_assert(x);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = element_float((seed & 0x80000000u) | 0x3e000000u | ((seed >> 8) & 0xffffffu));
    }
    return x;
}

struct wanted {
    enum arithmetic_codec codec;
    size_t n, piece;
    bool in_place;
};

static void expect_numbers(const struct device_encode *job, const uint8_t *bytes, uint32_t largest,
                           const char *what)
{
    double sums[4];
    const uint32_t right =
        arithmetic_measure_blocks(&arithmetic_scalar, job->codec, bytes, job->n, sums);
    cr_expect_eq(largest, right, "%s", what);
    cr_expect_eq(memcmp(job->sums, sums, arithmetic_blocks(job->n) * sizeof *sums), 0, "%s", what);
    for (size_t at = 0; at < job->n; at += job->piece) {
        const size_t some = job->n - at < job->piece ? job->n - at : job->piece;
        cr_assert_eq(
            job->crcs[at / job->piece],
            checksum_crc32c(0, bytes + codec_bytes(job->codec, at), codec_bytes(job->codec, some)),
            "%s: checksum of %zu", what, at);
    }
}

static void encode(struct device_rig *rig, const struct wanted *wanted)
{
    const size_t floats = wanted->n * sizeof(float), room = codec_bytes(wanted->codec, wanted->n);
    static double sums[4];
    static uint32_t crcs[PIECES_MAX];
    float *x = chance_floats(wanted->n, (uint32_t)wanted->n);
    uint8_t *right = malloc(room), *back = malloc(room);
    cr_assert(right && back);
    float *from = device_rig_get(rig, floats);
    void *to = device_rig_get(rig, room);
    device_rig_copy(rig, x, wanted->in_place ? to : from, floats);
    const struct device_encode job = {.codec = wanted->codec,
                                      .from = wanted->in_place ? NULL : from,
                                      .to = to,
                                      .n = wanted->n,
                                      .sums = sums,
                                      .piece = wanted->piece,
                                      .crcs = crcs};
    cr_assert_eq(rig->device->encode(rig->state, ++rig->tag, &job), GRADWEIR_OK, "%s",
                 fail_reason());
    const uint32_t largest = device_rig_finish(rig).largest_bits;
    device_rig_copy(rig, to, back, room);
    arithmetic_scalar.encode(wanted->codec, 1.0f, x, wanted->n, right);
    cr_expect_eq(memcmp(right, back, room), 0, "%s", rig->what);
    expect_numbers(&job, right, largest, rig->what);
    rig->device->free(rig->state, from, floats);
    rig->device->free(rig->state, to, room);
    free(x);
    free(right);
    free(back);
}

static void check_encode(struct device_rig *rig)
{
    static const size_t lengths[] = {N_MAX, ARITHMETIC_BLOCK, 1, 2 * ARITHMETIC_BLOCK + 255};
    static const size_t pieces[] = {65536, 256, 16384, 3 * 256, 1024};
    for (size_t i = 0; i < 20; i++) {
        const struct wanted wanted = {.codec = (enum arithmetic_codec)(i % 4),
                                      .n = lengths[i / 4 % 4],
                                      .piece = pieces[i % 5],
                                      .in_place = i % 8 == ARITHMETIC_F32};
        encode(rig, &wanted);
    }
}

Test(device, encodes_measures_and_sums_as_the_definition_does)
{
    device_rig_each(check_encode);
}

/* One push after the other with a rest; the last two are refused, the one before anybody sees it.
 */
static void feed_back(struct device_rig *rig, enum arithmetic_codec codec)
{
    enum { N = 2 * ARITHMETIC_BLOCK + 300, FLOATS = N * sizeof(float) };
    const size_t room = codec_bytes(codec, N);
    static double sums[4];
    static uint32_t crcs[4];
    float *right = calloc(N, sizeof *right), *back = malloc(FLOATS);
    uint8_t *sent = malloc(room);
    float *from = device_rig_get(rig, FLOATS), *rest = device_rig_get(rig, FLOATS);
    void *to = device_rig_get(rig, room);
    cr_assert(right && back && sent);
    for (uint32_t push = 0; push < 4; push++) {
        float *x = chance_floats(N, push + 7);
        device_rig_copy(rig, x, from, FLOATS);
        const struct device_encode job = {codec, from, rest, to, N, sums, ARITHMETIC_BLOCK, crcs};
        cr_assert_eq(rig->device->encode(rig->state, ++rig->tag, &job), GRADWEIR_OK);
        const uint32_t largest = device_rig_finish(rig).largest_bits;
        arithmetic_scalar.encode_rest(codec, x, N, right, sent);
        expect_numbers(&job, sent, largest, rig->what);
        const struct device_give_back give = {codec, to, N, push == 2 ? from : NULL, rest};
        if (push >= 2) {
            cr_assert_eq(rig->device->give_back(rig->state, ++rig->tag, &give), GRADWEIR_OK);
            device_rig_finish(rig);
        }
        for (size_t i = 0; push == 2 && i < N; i++)
            right[i] = (right[i] + codec_element(codec, sent, i)) - x[i];
        if (push == 3)
            arithmetic_scalar.decode_add(codec, sent, N, right);
        device_rig_copy(rig, rest, back, FLOATS);
        cr_expect_eq(memcmp(back, right, FLOATS), 0, "%s: push %u", rig->what, push);
        free(x);
    }
    rig->device->free(rig->state, from, FLOATS);
    rig->device->free(rig->state, rest, FLOATS);
    rig->device->free(rig->state, to, room);
    free(right);
    free(back);
    free(sent);
}

static void check_feedback(struct device_rig *rig)
{
    for (int codec = ARITHMETIC_BF16; codec <= ARITHMETIC_INT8; codec++)
        feed_back(rig, (enum arithmetic_codec)codec);
}

Test(device, what_an_encoding_leaves_out_stays_owed_and_what_is_refused_comes_back)
{
    device_rig_each(check_feedback);
}

static void check_refusals(struct device_rig *rig)
{
    double sums[1];
    uint32_t crcs[1];
    float x[256] = {0};
    uint8_t to[512];
    const struct device_encode good = {.codec = ARITHMETIC_BF16,
                                       .from = x,
                                       .to = to,
                                       .n = 256,
                                       .sums = sums,
                                       .piece = 256,
                                       .crcs = crcs};
    const struct device_give_back none = {.codec = ARITHMETIC_BF16, .sent = to, .n = 256};
    struct device_encode bad[6] = {good, good, good, good, good, good};
    bad[0].n = 0;
    bad[1].piece = 100;
    bad[2].crcs = NULL;
    bad[3].from = NULL;
    bad[4].sums = NULL;
    bad[5].codec = ARITHMETIC_F32;
    bad[5].rest = x;
    cr_expect_eq(rig->device->give_back(rig->state, 1, &none), GRADWEIR_ERR_INVALID);
    for (size_t i = 0; i < 6; i++)
        cr_expect_eq(rig->device->encode(rig->state, 1, &bad[i]), GRADWEIR_ERR_INVALID, "%zu", i);
    cr_expect_eq(rig->device->in_flight(rig->state), 0u);
}

Test(device, an_encoding_that_makes_no_sense_is_refused)
{
    device_rig_each(check_refusals);
}
