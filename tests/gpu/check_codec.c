/* measure, decode, encode against the CPU's own loops, in every codec. */
#include "common/codec.h"
#include "tests/gpu/check.h"

#include <stdlib.h>
#include <string.h>

enum { CODECS = 4 };

static const size_t grains[CODECS] = {4, 2, 2, 4};

/* 1 to about three blocks, often near a border of something. */
static size_t draw_length(struct random *random)
{
    static const size_t borders[] = {1, 4, 16, 256, 4096, ARITHMETIC_BLOCK, 2 * ARITHMETIC_BLOCK};
    const size_t border = borders[random_below(random, sizeof borders / sizeof *borders)];
    const size_t n = border + random_below(random, 5);
    return random_below(random, 3) == 0 ? 1 + random_below(random, 3 * ARITHMETIC_BLOCK)
           : n - 1                      ? n - 1
                                        : 1;
}

static size_t draw_shift(struct random *random, enum arithmetic_codec codec)
{
    return random_below(random, 5) * grains[codec];
}

/* Floats of a gradient; now and then an infinite one, a subnormal, a very large one. No NaN: its
 * bits are nobody's promise. */
static float *draw_gradient(struct random *random, size_t n)
{
    static const uint32_t odd[] = {0x7f800000u, 0xff800000u, 0x007fffffu, 0x00000001u,
                                   0x80000000u, 0x7f7fffffu, 0x477ff000u, 0x33000000u};
    float *x = malloc(n * sizeof *x);
    if (x == NULL)
        abort();
    fill_floats(random, x, n);
    for (uint64_t i = random_below(random, 4); i > 0; i--)
        x[random_below(random, n)] = element_float(odd[random_below(random, 8)]);
    return x;
}

struct measured {
    struct array sums, largest;
};

static struct measured measured_new(size_t n)
{
    const size_t blocks = arithmetic_blocks(n);
    return (struct measured){array_new(blocks * sizeof(double), 0),
                             array_new(blocks * sizeof(uint32_t), 4)};
}

/* What the CPU says of these bytes is what the GPU should have said. Which NaN is nobody's promise.
 */
static void expect_measured(struct measured *made, enum arithmetic_codec codec, const void *data,
                            size_t n, const char *what)
{
    const struct arithmetic *set = arithmetic_choose(NULL);
    for (size_t b = 0; b < arithmetic_blocks(n); b++) {
        const size_t at = b * ARITHMETIC_BLOCK;
        const size_t some = n - at < ARITHMETIC_BLOCK ? n - at : ARITHMETIC_BLOCK;
        struct arithmetic_measure piece;
        set->measure(codec, (const unsigned char *)data + codec_bytes(codec, at), some, &piece);
        double sum;
        uint32_t largest;
        memory_fetch(&sum, made->sums.device + b * sizeof sum, sizeof sum);
        memory_fetch(&largest, made->largest.device + b * sizeof largest, sizeof largest);
        const bool finite = arithmetic_finite(piece.largest_bits);
        expect(finite == arithmetic_finite(largest), what, n);
        if (!finite) {
            piece.sum_squares = sum;
            piece.largest_bits = largest;
        }
        memcpy(made->sums.host + b * sizeof sum, &piece.sum_squares, sizeof sum);
        memcpy(made->largest.host + b * sizeof largest, &piece.largest_bits, sizeof largest);
    }
    expect_same(&made->sums, what, n);
    expect_same(&made->largest, what, n);
    array_end(&made->sums);
    array_end(&made->largest);
}

static void run_encode(struct random *random)
{
    for (int codec = 0; codec < CODECS; codec++) {
        const size_t n = draw_length(random), bytes = codec_bytes((enum arithmetic_codec)codec, n);
        const float scale = random_below(random, 2) ? 1.0f : 0.37f;
        float *x = draw_gradient(random, n);
        struct array from = array_of(x, n * sizeof *x, draw_shift(random, ARITHMETIC_F32));
        struct array to = array_new(bytes, draw_shift(random, (enum arithmetic_codec)codec));
        struct measured made = measured_new(n);
        expect_ran(gpu_encode(memory_stream(), (enum arithmetic_codec)codec, there(&from), n, scale,
                              to.device, (double *)(void *)made.sums.device,
                              (uint32_t *)(void *)made.largest.device),
                   "encode", n);
        arithmetic_choose(NULL)->encode((enum arithmetic_codec)codec, scale, x, n, to.host);
        expect_same(&to, codec_name((uint32_t)codec), n);
        expect_measured(&made, (enum arithmetic_codec)codec, to.host, n, "norms of encode");
        array_end(&from);
        array_end(&to);
        free(x);
    }
}

/* A NaN anywhere is seen by every codec, in its block and in no other. */
static void run_encode_nan(struct random *random)
{
    for (int codec = 0; codec < CODECS; codec++) {
        const size_t n = draw_length(random), at = random_below(random, n);
        float *x = draw_gradient(random, n);
        fill_floats(random, x, n);
        x[at] = element_float(0xffc00001u);
        struct array from = array_of(x, n * sizeof *x, 0);
        struct array to = array_new(codec_bytes((enum arithmetic_codec)codec, n), 0);
        struct array sums = array_new(arithmetic_blocks(n) * sizeof(double), 0);
        struct array largest = array_new(arithmetic_blocks(n) * sizeof(uint32_t), 0);
        expect_ran(gpu_encode(memory_stream(), (enum arithmetic_codec)codec, there(&from), n, 1.0f,
                              to.device, (double *)(void *)sums.device,
                              (uint32_t *)(void *)largest.device),
                   "encode of a NaN", n);
        memory_fetch(largest.host, largest.device, largest.bytes);
        for (size_t b = 0; b < arithmetic_blocks(n); b++)
            expect(arithmetic_finite(((uint32_t *)(void *)largest.host)[b]) ==
                       (b != at / ARITHMETIC_BLOCK),
                   "a NaN is seen in its block", n);
        array_end(&from);
        array_end(&to);
        array_end(&sums);
        array_end(&largest);
        free(x);
    }
}

static void run_decode(struct random *random)
{
    for (int codec = 0; codec < CODECS; codec++) {
        const size_t n = draw_length(random), bytes = codec_bytes((enum arithmetic_codec)codec, n);
        float *x = draw_gradient(random, n);
        struct array from = array_new(bytes, draw_shift(random, (enum arithmetic_codec)codec));
        arithmetic_choose(NULL)->encode((enum arithmetic_codec)codec, 1.0f, x, n, from.host);
        array_send(&from);
        struct array to = array_new(n * sizeof(float), draw_shift(random, ARITHMETIC_F32));
        struct measured made = measured_new(n);
        expect_ran(
            gpu_decode(memory_stream(), (enum arithmetic_codec)codec, from.device, n, there(&to)),
            "decode", n);
        expect_ran(gpu_measure(memory_stream(), (enum arithmetic_codec)codec, from.device, n,
                               (double *)(void *)made.sums.device,
                               (uint32_t *)(void *)made.largest.device),
                   "measure", n);
        arithmetic_choose(NULL)->decode((enum arithmetic_codec)codec, from.host, n, here(&to));
        expect_same(&to, codec_name((uint32_t)codec), n);
        expect_same(&from, "what decode reads", n);
        expect_measured(&made, (enum arithmetic_codec)codec, from.host, n, "norms of measure");
        array_end(&from);
        array_end(&to);
        free(x);
    }
}

/* Times. */
struct timed {
    enum arithmetic_codec codec;
    float *floats;
    void *codes;
    double *sums;
    uint32_t *largest;
};

static struct timed timed_new(enum arithmetic_codec codec)
{
    const size_t n = memory_timed();
    return (struct timed){.codec = codec,
                          .floats = timed_floats(n),
                          .codes = memory_get(codec_bytes(codec, n)),
                          .sums = memory_get(arithmetic_blocks(n) * sizeof(double)),
                          .largest = memory_get(arithmetic_blocks(n) * sizeof(uint32_t))};
}

static void timed_end(struct timed *t)
{
    memory_free(t->floats);
    memory_free(t->codes);
    memory_free(t->sums);
    memory_free(t->largest);
}

static void call_encode(void *context)
{
    const struct timed *t = context;
    (void)gpu_encode(memory_stream(), t->codec, t->floats, memory_timed(), 1.0f, t->codes, t->sums,
                     t->largest);
}

static void call_decode(void *context)
{
    const struct timed *t = context;
    (void)gpu_decode(memory_stream(), t->codec, t->codes, memory_timed(), t->floats);
}

static void call_measure(void *context)
{
    const struct timed *t = context;
    (void)gpu_measure(memory_stream(), t->codec, t->codes, memory_timed(), t->sums, t->largest);
}

static double time_of(void (*call)(void *), enum arithmetic_codec codec, double *bytes)
{
    struct timed t = timed_new(codec);
    call_encode(&t);
    const double seconds = memory_seconds(call, &t, 5);
    const double floats = call == call_measure ? 0 : (double)memory_timed() * sizeof(float);
    *bytes = floats + (double)codec_bytes(codec, memory_timed());
    timed_end(&t);
    return seconds;
}

static double time_encode_f32(double *bytes)
{
    return time_of(call_encode, ARITHMETIC_F32, bytes);
}
static double time_encode_bf16(double *bytes)
{
    return time_of(call_encode, ARITHMETIC_BF16, bytes);
}
static double time_encode_int8(double *bytes)
{
    return time_of(call_encode, ARITHMETIC_INT8, bytes);
}
static double time_decode_bf16(double *bytes)
{
    return time_of(call_decode, ARITHMETIC_BF16, bytes);
}
static double time_decode_int8(double *bytes)
{
    return time_of(call_decode, ARITHMETIC_INT8, bytes);
}
static double time_encode_f16(double *bytes)
{
    return time_of(call_encode, ARITHMETIC_F16, bytes);
}
static double time_measure(double *bytes)
{
    return time_of(call_measure, ARITHMETIC_F32, bytes);
}

const struct check checks_codec[] = {
    {"encode, norm: all codecs (times: float32)", "bits", run_encode, time_encode_f32, CHECK_GOAL},
    {"encode sees a NaN (times: bfloat16)", "bits", run_encode_nan, time_encode_bf16, CHECK_GOAL},
    {"encode (times: float16)", "-", NULL, time_encode_f16, CHECK_GOAL},
    {"encode (times: int8)", "-", NULL, time_encode_int8, CHECK_GOAL},
    {"decode, measure: all codecs (times: decode bfloat16)", "bits", run_decode, time_decode_bf16,
     CHECK_GOAL},
    {"decode (times: int8)", "-", NULL, time_decode_int8, CHECK_GOAL},
    {"measure (times: float32)", "-", NULL, time_measure, 0},
    {NULL, NULL, NULL, NULL, 0},
};
