/* Error feedback against the CPU's own loops: what is sent and what stays owed, and both ways of a
 * refused push back, in every codec that leaves something out. */
#include "common/codec.h"
#include "common/element_gradient.h"
#include "tests/gpu/check.h"

#include <stdlib.h>
#include <string.h>

enum { TIMED = 1 << 24 };

static const size_t grains[] = {4, 2, 2, 4};

struct feedback_case {
    enum arithmetic_codec codec;
    size_t n;
    struct array from, rest, to, sums, largest;
};

/* A gradient with now and then something that is not finite, or too large for float16. */
static struct feedback_case case_new(struct random *random, enum arithmetic_codec codec)
{
    static const float odd[] = {INFINITY, -INFINITY, 70000.0f, 1e-41f};
    struct feedback_case c = {.codec = codec};
    c.n = 1 + random_below(random, random_below(random, 2) ? 700 : 2 * ARITHMETIC_BLOCK + 999);
    c.from = floats_uniform(random, c.n, -3.0f, 3.0f);
    c.rest = floats_uniform(random, c.n, -0.1f, 0.1f);
    for (uint64_t i = random_below(random, 4); i > 0; i--)
        here(&c.from)[random_below(random, c.n)] = odd[random_below(random, 4)];
    array_send(&c.from);
    c.to = array_new(codec_bytes(codec, c.n), random_below(random, 4) * grains[codec]);
    c.sums = array_new(arithmetic_blocks(c.n) * sizeof(double), 0);
    c.largest = array_new(arithmetic_blocks(c.n) * sizeof(uint32_t), 0);
    return c;
}

static void case_end(struct feedback_case *c)
{
    array_end(&c->from);
    array_end(&c->rest);
    array_end(&c->to);
    array_end(&c->sums);
    array_end(&c->largest);
}

/* Which NaN a sum of what is not finite is, is nobody's promise: the device's is taken over. */
static void expect_sums(struct feedback_case *c)
{
    double sum;
    uint32_t largest;
    for (size_t b = 0; b < arithmetic_blocks(c->n); b++) {
        const size_t at = b * ARITHMETIC_BLOCK, rest = c->n - at;
        struct arithmetic_measure piece;
        arithmetic_choose(NULL)->measure(c->codec, c->to.host + codec_bytes(c->codec, at),
                                         rest < ARITHMETIC_BLOCK ? rest : ARITHMETIC_BLOCK, &piece);
        memory_fetch(&sum, c->sums.device + b * sizeof sum, sizeof sum);
        memory_fetch(&largest, c->largest.device + b * sizeof largest, sizeof largest);
        const bool finite = arithmetic_finite(piece.largest_bits);
        expect(finite == arithmetic_finite(largest), "the finite test of what is owed", c->n);
        expect(!finite || (memcmp(&sum, &piece.sum_squares, sizeof sum) == 0 &&
                           largest == piece.largest_bits),
               "the measure of what is owed", c->n);
    }
}

static void undo(struct feedback_case *c)
{
    for (size_t i = 0; i < c->n; i++)
        here(&c->rest)[i] = element_untaken(
            here(&c->rest)[i], codec_element(c->codec, c->to.host, i), here(&c->from)[i]);
}

static void run_feedback(struct random *random)
{
    for (int codec = ARITHMETIC_BF16; codec <= ARITHMETIC_INT8; codec++) {
        struct feedback_case c = case_new(random, (enum arithmetic_codec)codec);
        const struct arithmetic *set = arithmetic_choose(NULL);
        expect_ran(gpu_encode_rest(memory_stream(), c.codec, there(&c.from), c.n, there(&c.rest),
                                   c.to.device, (double *)(void *)c.sums.device,
                                   (uint32_t *)(void *)c.largest.device),
                   "encode with a rest", c.n);
        set->encode_rest(c.codec, here(&c.from), c.n, here(&c.rest), c.to.host);
        expect_same(&c.to, codec_name((uint32_t)codec), c.n);
        expect_same(&c.rest, "what stays owed", c.n);
        expect_sums(&c);
        expect_ran(gpu_give_back(memory_stream(), c.codec, c.to.device, c.n, there(&c.from),
                                 there(&c.rest)),
                   "undoing", c.n);
        undo(&c);
        expect_same(&c.rest, "what is undone", c.n);
        case_end(&c);
    }
}

static void run_give_back(struct random *random)
{
    for (int codec = ARITHMETIC_BF16; codec <= ARITHMETIC_INT8; codec++) {
        const size_t n = 1 + random_below(random, ARITHMETIC_BLOCK + 300);
        const size_t bytes = codec_bytes((enum arithmetic_codec)codec, n);
        struct array x = floats_uniform(random, n, -2.0f, 2.0f);
        struct array rest = floats_uniform(random, n, -0.1f, 0.1f);
        struct array sent = array_new(bytes, random_below(random, 4) * grains[codec]);
        arithmetic_choose(NULL)->encode((enum arithmetic_codec)codec, 1.0f, here(&x), n, sent.host);
        array_send(&sent);
        expect_ran(gpu_give_back(memory_stream(), (enum arithmetic_codec)codec, sent.device, n,
                                 NULL, there(&rest)),
                   "giving back", n);
        arithmetic_choose(NULL)->decode_add((enum arithmetic_codec)codec, sent.host, n,
                                            here(&rest));
        expect_same(&rest, "what comes back", n);
        array_end(&x);
        array_end(&rest);
        array_end(&sent);
    }
}

struct timed {
    float *from, *rest;
    void *to;
    double *sums;
    uint32_t *largest;
};

static void call_encode(void *context)
{
    const struct timed *t = context;
    (void)gpu_encode_rest(memory_stream(), ARITHMETIC_INT8, t->from, TIMED, t->rest, t->to, t->sums,
                          t->largest);
}

static double time_encode(double *bytes)
{
    const size_t blocks = arithmetic_blocks(TIMED);
    struct timed t = {.from = memory_get(TIMED * sizeof(float)),
                      .rest = memory_get(TIMED * sizeof(float)),
                      .to = memory_get(codec_bytes(ARITHMETIC_INT8, TIMED)),
                      .sums = memory_get(blocks * sizeof(double)),
                      .largest = memory_get(blocks * sizeof(uint32_t))};
    const double seconds = memory_seconds(call_encode, &t, 5);
    *bytes = 3.0 * TIMED * sizeof(float) + (double)codec_bytes(ARITHMETIC_INT8, TIMED);
    memory_free(t.from);
    memory_free(t.rest);
    memory_free(t.to);
    memory_free(t.sums);
    memory_free(t.largest);
    return seconds;
}

const struct check checks_feedback[] = {
    {"encode with a rest, undo (times: encode int8)", "bits", run_feedback, time_encode, 0},
    {"giving back what was refused", "bits", run_give_back, NULL, 0},
    {NULL, NULL, NULL, NULL, 0},
};
