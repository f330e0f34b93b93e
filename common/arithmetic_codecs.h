/* The loops of the codecs: float32 into wire bytes and back. A part of arithmetic_loops.h, included
 * there and nowhere else. codec.h has the layouts. */
#ifndef GRADWEIR_COMMON_ARITHMETIC_CODECS_H
#define GRADWEIR_COMMON_ARITHMETIC_CODECS_H

static inline bool is_finite(float x)
{
    return (element_bits(x) & 0x7f800000u) != 0x7f800000u;
}

/* One block of int8: its bytes and its scale, which is NaN when an element was not finite. */
static float encode_int8_block(const float *x, size_t n, unsigned char *to)
{
    const uint32_t largest = largest_of(x, n, 0);
    const float scale = element_int8_scale(largest), inverse = element_int8_inverse(scale);
    int8_t *q = (int8_t *)to + sizeof scale;
    memcpy(to, &scale, sizeof scale);
    if (!is_finite(scale)) {
        for (size_t i = 0; i < n; i++)
            q[i] = !is_finite(x[i]);
        return scale;
    }
    INDEPENDENT
    for (size_t i = 0; i < n; i++)
        q[i] = element_to_int8(x[i], inverse);
    return scale;
}

static void encode_int8(float factor, const float *from, size_t n, unsigned char *to)
{
    float x[CODEC_BLOCK];
    for (size_t at = 0; at < n; at += CODEC_BLOCK, to += sizeof(float) + CODEC_BLOCK) {
        const size_t some = n - at < CODEC_BLOCK ? n - at : CODEC_BLOCK;
        INDEPENDENT
        for (size_t i = 0; i < some; i++)
            x[i] = from[at + i] * factor;
        (void)encode_int8_block(x, some, to);
    }
}

static void encode_rest_int8(const float *from, size_t n, float *rest, unsigned char *to)
{
    float x[CODEC_BLOCK];
    for (size_t at = 0; at < n; at += CODEC_BLOCK, to += sizeof(float) + CODEC_BLOCK) {
        const size_t some = n - at < CODEC_BLOCK ? n - at : CODEC_BLOCK;
        INDEPENDENT
        for (size_t i = 0; i < some; i++)
            x[i] = from[at + i] + rest[at + i];
        const float scale = encode_int8_block(x, some, to);
        const int8_t *q = (const int8_t *)to + sizeof scale;
        if (!is_finite(scale))
            continue;
        INDEPENDENT
        for (size_t i = 0; i < some; i++)
            rest[at + i] = x[i] - element_from_int8(q[i], scale);
    }
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
    case ARITHMETIC_INT8: encode_int8(scale, from, n, to); return;
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
    case ARITHMETIC_INT8: encode_rest_int8(from, n, rest, to); return;
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
