/* The loops of the codecs: float32 into wire bytes and back. A part of arithmetic_loops.h, included
 * there and nowhere else. codec.h has the layouts. */
#ifndef GRADWEIR_COMMON_ARITHMETIC_CODECS_H
#define GRADWEIR_COMMON_ARITHMETIC_CODECS_H

/* Called with a constant where blocks are whole, so that loops have no ends to look after. */
#define BLOCK static inline __attribute__((always_inline)) void

static inline bool is_finite(float x)
{
    return (element_bits(x) & 0x7f800000u) != 0x7f800000u;
}

/* What is encoded: with its rest, or else times a factor. */
static inline __attribute__((always_inline)) float sum_of(float factor, const float *from,
                                                          const float *rest, size_t i)
{
    return rest ? from[i] + rest[i] : from[i] * factor;
}

BLOCK find_largest(float factor, const float *from, const float *rest, size_t n, uint32_t *out)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t size = element_bits(sum_of(factor, from, rest, i)) & 0x7fffffffu;
        largest = size > largest ? size : largest;
    }
    *out = largest;
}

/* What a block of int8 adds to a measure. */
BLOCK count_block(float scale, int32_t squares, int32_t most, struct arithmetic_running *running)
{
    const uint32_t size =
        is_finite(scale) ? element_bits((float)most * scale) & 0x7fffffffu : 0x7fc00000u;
    running->lanes[0] += (double)squares * ((double)scale * (double)scale);
    running->largest_bits = size > running->largest_bits ? size : running->largest_bits;
}

static inline __attribute__((always_inline)) int32_t squares_of(const int8_t *q, size_t n)
{
    int32_t squares = 0;
    for (size_t i = 0; i < n; i++)
        squares += (int16_t)q[i] * (int16_t)q[i];
    return squares;
}

/* A block of int8 whose largest magnitude is known: scale, bytes, and what they leave out (rest
 * NULL: nobody wants that); counted in running as measure_int8 would. Rounding keeps the order of
 * magnitudes, so the largest of them becomes the largest byte. Sums that are not finite are marked,
 * and nothing is owed. */
BLOCK write_block(float factor, const float *from, size_t n, uint32_t largest, float *rest,
                  unsigned char *to, struct arithmetic_running *running)
{
    const float scale = element_int8_scale(largest), inverse = element_int8_inverse(scale);
    int8_t *q = (int8_t *)to + sizeof scale;
    memcpy(to, &scale, sizeof scale);
    if (!is_finite(scale)) {
        for (size_t i = 0; i < n; i++)
            q[i] = !is_finite(sum_of(factor, from, rest, i));
        count_block(scale, 1, 1, running);
        return;
    }
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        const float x = sum_of(factor, from, rest, i);
        q[i] = element_to_int8(x, inverse);
        if (rest)
            rest[i] = x - element_int8_steps(x, inverse) * scale;
    }
    count_block(scale, squares_of(q, n), element_to_int8(element_float(largest), inverse), running);
}

/* A block's largest is looked for before the block ahead of it is written: its scale takes two
 * divisions, one after the other, and meanwhile there is something to do. */
BLOCK encode_int8_blocks(float factor, const float *from, size_t n, float *rest, unsigned char *to,
                         struct arithmetic_running *running)
{
    uint32_t largest = 0;
    size_t at = 0;
    for (; at + CODEC_BLOCK <= n; at += CODEC_BLOCK, to += sizeof(float) + CODEC_BLOCK) {
        find_largest(factor, from + at, rest ? rest + at : NULL, CODEC_BLOCK, &largest);
        write_block(factor, from + at, CODEC_BLOCK, largest, rest ? rest + at : NULL, to, running);
    }
    if (at == n)
        return;
    find_largest(factor, from + at, rest ? rest + at : NULL, n - at, &largest);
    write_block(factor, from + at, n - at, largest, rest ? rest + at : NULL, to, running);
}

static void encode_int8(float factor, const float *from, size_t n, float *rest, void *to,
                        struct arithmetic_running *running)
{
    if (rest)
        encode_int8_blocks(1.0f, from, n, rest, to, running);
    else
        encode_int8_blocks(factor, from, n, NULL, to, running);
}

BLOCK measure_int8_block(const unsigned char *block, size_t n, struct arithmetic_running *running)
{
    const int8_t *q = (const int8_t *)block + sizeof(float);
    uint8_t most = 0;
    float scale;
    memcpy(&scale, block, sizeof scale);
    for (size_t i = 0; i < n; i++) {
        const uint8_t size = (uint8_t)(q[i] < 0 ? -q[i] : q[i]);
        most = size > most ? size : most;
    }
    count_block(scale, squares_of(q, n), most, running);
}

/* Bytes are squared and added as integers, which is exact; one block after the other. */
static void measure_int8(const void *data, size_t n, struct arithmetic_running *running)
{
    const unsigned char *block = data;
    size_t at = 0;
    for (; at + CODEC_BLOCK <= n; at += CODEC_BLOCK, block += sizeof(float) + CODEC_BLOCK)
        measure_int8_block(block, CODEC_BLOCK, running);
    if (at < n)
        measure_int8_block(block, n - at, running);
}

/* n elements from element i of `data`, which may lie within a block: a tensor's range does. */
static void decode_int8(const void *data, size_t i, size_t n, float *to)
{
    while (n > 0) {
        const unsigned char *block =
            (const unsigned char *)data + i / CODEC_BLOCK * (sizeof(float) + CODEC_BLOCK);
        const size_t from = i % CODEC_BLOCK, left = CODEC_BLOCK - from, some = n < left ? n : left;
        const int8_t *q = (const int8_t *)block + sizeof(float) + from;
        float scale;
        memcpy(&scale, block, sizeof scale);
        INDEPENDENT
        for (size_t k = 0; k < some; k++)
            to[k] = element_from_int8(q[k], scale);
        i += some;
        to += some;
        n -= some;
    }
}

/* Halves: bfloat16 and float16. Called with a constant, so that each is a loop of its own. */
static inline __attribute__((always_inline)) uint16_t to_half(enum arithmetic_codec codec, float x)
{
    return codec == ARITHMETIC_BF16 ? element_to_bf16(x) : element_to_f16(x);
}

static inline __attribute__((always_inline)) float from_half(enum arithmetic_codec codec,
                                                             uint16_t half)
{
    return codec == ARITHMETIC_BF16 ? element_from_bf16(half) : element_from_f16(half);
}

static inline float rest_of(float sum, float sent, float before)
{
    return is_finite(sent) ? sum - sent : before;
}

/* The larger of two halves is that of which the magnitude's bits are larger. */
static uint32_t largest_half(enum arithmetic_codec codec, const uint16_t *half, size_t n)
{
    uint16_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const uint16_t size = half[i] & 0x7fffu;
        most = size > most ? size : most;
    }
    return element_bits(codec == ARITHMETIC_BF16 ? element_from_bf16(most)
                                                 : element_from_f16(most));
}

BLOCK measure_halves(enum arithmetic_codec codec, const uint16_t *half, size_t n,
                     struct arithmetic_running *running)
{
    double sum[ARITHMETIC_LANES];
    memcpy(sum, running->lanes, sizeof sum);
    size_t i = 0;
    for (; i + ARITHMETIC_LANES <= n; i += ARITHMETIC_LANES)
        for (size_t j = 0; j < ARITHMETIC_LANES; j++) {
            const double value = (double)from_half(codec, half[i + j]);
            sum[j] += value * value;
        }
    for (size_t j = 0; i + j < n; j++) {
        const double value = (double)from_half(codec, half[i + j]);
        sum[j] += value * value;
    }
    memcpy(running->lanes, sum, sizeof sum);
    const uint32_t largest = largest_half(codec, half, n);
    running->largest_bits = largest > running->largest_bits ? largest : running->largest_bits;
}

BLOCK encode_halves(enum arithmetic_codec codec, float factor, const float *from, size_t n,
                    float *rest, uint16_t *to)
{
    if (!rest) {
        INDEPENDENT
        for (size_t i = 0; i < n; i++)
            to[i] = to_half(codec, from[i] * factor);
        return;
    }
    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        const float sum = from[i] + rest[i];
        to[i] = to_half(codec, sum);
        rest[i] = rest_of(sum, from_half(codec, to[i]), rest[i]);
    }
}

static void encode(enum arithmetic_codec codec, float scale, const float *from, size_t n, void *to)
{
    struct arithmetic_running unused = {.largest_bits = 0};
    float *to_f32 = to;
    switch (codec) {
    case ARITHMETIC_F32:
        INDEPENDENT
        for (size_t i = 0; i < n; i++)
            to_f32[i] = from[i] * scale;
        return;
    case ARITHMETIC_BF16: encode_halves(ARITHMETIC_BF16, scale, from, n, NULL, to); return;
    case ARITHMETIC_F16: encode_halves(ARITHMETIC_F16, scale, from, n, NULL, to); return;
    case ARITHMETIC_INT8: encode_int8(scale, from, n, NULL, to, &unused); return;
    }
    ASSERT(!"a codec");
}

static void decode(enum arithmetic_codec codec, const void *from, size_t n, float *to)
{
    const uint16_t *half = from;
    switch (codec) {
    case ARITHMETIC_F32: memmove(to, from, n * sizeof *to); return;
    case ARITHMETIC_BF16:
        INDEPENDENT
        for (size_t i = 0; i < n; i++)
            to[i] = element_from_bf16(half[i]);
        return;
    case ARITHMETIC_F16:
        INDEPENDENT
        for (size_t i = 0; i < n; i++)
            to[i] = element_from_f16(half[i]);
        return;
    case ARITHMETIC_INT8: decode_int8(from, 0, n, to); return;
    }
    ASSERT(!"a codec");
}

static void encode_rest(enum arithmetic_codec codec, const float *from, size_t n, float *rest,
                        void *to)
{
    struct arithmetic_running unused = {.largest_bits = 0};
    float *to_f32 = to;
    switch (codec) {
    case ARITHMETIC_F32:
        INDEPENDENT
        for (size_t i = 0; i < n; i++) {
            to_f32[i] = from[i] + rest[i];
            rest[i] = rest_of(to_f32[i], to_f32[i], rest[i]);
        }
        return;
    case ARITHMETIC_BF16: encode_halves(ARITHMETIC_BF16, 1.0f, from, n, rest, to); return;
    case ARITHMETIC_F16: encode_halves(ARITHMETIC_F16, 1.0f, from, n, rest, to); return;
    case ARITHMETIC_INT8: encode_int8(1.0f, from, n, rest, to, &unused); return;
    }
    ASSERT(!"a codec");
}

static void decode_add(enum arithmetic_codec codec, const void *from, size_t n, float *to)
{
    float x[CODEC_BLOCK];
    for (size_t at = 0; at < n; at += CODEC_BLOCK) {
        const size_t some = n - at < CODEC_BLOCK ? n - at : CODEC_BLOCK;
        decode(codec, (const unsigned char *)from + codec_bytes(codec, at), some, x);
        INDEPENDENT
        for (size_t i = 0; i < some; i++)
            to[at + i] += x[i];
    }
}

#endif
