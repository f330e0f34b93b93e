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

/* A block of int8 from its sums, whose largest magnitude is known: scale, bytes, and what they
 * leave out (rest NULL: nobody wants that). */
BLOCK encode_block(const float *x, size_t n, uint32_t largest, float *rest, unsigned char *to)
{
    const float scale = element_int8_scale(largest), inverse = element_int8_inverse(scale);
    int8_t *q = (int8_t *)to + sizeof scale;
    memcpy(to, &scale, sizeof scale);
    if (!is_finite(scale)) {
        for (size_t i = 0; i < n; i++)
            q[i] = !is_finite(x[i]);
        return;
    }
    INDEPENDENT
    for (size_t i = 0; i < n; i++)
        q[i] = element_to_int8(x[i], inverse);
    if (rest == NULL)
        return;
    INDEPENDENT
    for (size_t i = 0; i < n; i++)
        rest[i] = x[i] - element_from_int8(q[i], scale);
}

BLOCK encode_int8_block(float factor, const float *from, size_t n, float *rest, unsigned char *to)
{
    float x[CODEC_BLOCK];
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        x[i] = rest ? from[i] + rest[i] : from[i] * factor;
        const uint32_t size = element_bits(x[i]) & 0x7fffffffu;
        largest = size > largest ? size : largest;
    }
    encode_block(x, n, largest, rest, to);
}

static void encode_int8(float factor, const float *from, size_t n, float *rest, unsigned char *to)
{
    size_t at = 0;
    for (; at + CODEC_BLOCK <= n; at += CODEC_BLOCK, to += sizeof(float) + CODEC_BLOCK)
        if (rest)
            encode_int8_block(1.0f, from + at, CODEC_BLOCK, rest + at, to);
        else
            encode_int8_block(factor, from + at, CODEC_BLOCK, NULL, to);
    if (at < n)
        encode_int8_block(factor, from + at, n - at, rest ? rest + at : NULL, to);
}

BLOCK measure_int8_block(const unsigned char *block, size_t n, double *sum, uint32_t *largest)
{
    const int8_t *q = (const int8_t *)block + sizeof(float);
    int32_t squares = 0;
    int16_t most = 0;
    float scale;
    memcpy(&scale, block, sizeof scale);
    for (size_t i = 0; i < n; i++)
        squares += (int16_t)q[i] * (int16_t)q[i];
    for (size_t i = 0; i < n; i++) {
        const int16_t size = q[i] < 0 ? (int16_t)-q[i] : q[i];
        most = size > most ? size : most;
    }
    const uint32_t size =
        is_finite(scale) ? element_bits((float)most * scale) & 0x7fffffffu : 0x7fc00000u;
    *sum += (double)squares * ((double)scale * (double)scale);
    *largest = size > *largest ? size : *largest;
}

/* Bytes are squared and added as integers, which is exact; one block after the other. */
static void measure_int8(const void *data, size_t n, double *sum, uint32_t *largest)
{
    const unsigned char *block = data;
    size_t at = 0;
    for (; at + CODEC_BLOCK <= n; at += CODEC_BLOCK, block += sizeof(float) + CODEC_BLOCK)
        measure_int8_block(block, CODEC_BLOCK, sum, largest);
    if (at < n)
        measure_int8_block(block, n - at, sum, largest);
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

static void encode(enum arithmetic_codec codec, float scale, const float *from, size_t n, void *to)
{
    float *to_f32 = to;
    uint16_t *to_half = to;
    switch (codec) {
    case ARITHMETIC_F32:
        INDEPENDENT
        for (size_t i = 0; i < n; i++)
            to_f32[i] = from[i] * scale;
        return;
    case ARITHMETIC_BF16:
        INDEPENDENT
        for (size_t i = 0; i < n; i++)
            to_half[i] = element_to_bf16(from[i] * scale);
        return;
    case ARITHMETIC_F16:
        INDEPENDENT
        for (size_t i = 0; i < n; i++)
            to_half[i] = element_to_f16(from[i] * scale);
        return;
    case ARITHMETIC_INT8: encode_int8(scale, from, n, NULL, to); return;
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

static inline float rest_of(float sum, float sent, float before)
{
    return is_finite(sent) ? sum - sent : before;
}

static void encode_rest(enum arithmetic_codec codec, const float *from, size_t n, float *rest,
                        void *to)
{
    float *to_f32 = to;
    uint16_t *to_half = to;
    switch (codec) {
    case ARITHMETIC_F32:
        INDEPENDENT
        for (size_t i = 0; i < n; i++) {
            to_f32[i] = from[i] + rest[i];
            rest[i] = rest_of(to_f32[i], to_f32[i], rest[i]);
        }
        return;
    case ARITHMETIC_BF16:
        INDEPENDENT
        for (size_t i = 0; i < n; i++) {
            const float sum = from[i] + rest[i];
            to_half[i] = element_to_bf16(sum);
            rest[i] = rest_of(sum, element_from_bf16(to_half[i]), rest[i]);
        }
        return;
    case ARITHMETIC_F16:
        INDEPENDENT
        for (size_t i = 0; i < n; i++) {
            const float sum = from[i] + rest[i];
            to_half[i] = element_to_f16(sum);
            rest[i] = rest_of(sum, element_from_f16(to_half[i]), rest[i]);
        }
        return;
    case ARITHMETIC_INT8: encode_int8(1.0f, from, n, rest, to); return;
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
