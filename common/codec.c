/* Names, sizes and layout of the codecs. */
#include "common/codec.h"

#include "common/status.h"

#include <string.h>

static const char *const names[] = {"float32", "bfloat16", "float16", "int8"};

enum { CODECS = sizeof names / sizeof *names, SCALE_BYTES = sizeof(float) };

const char *codec_name(uint32_t codec)
{
    return codec < CODECS ? names[codec] : NULL;
}

bool codec_find(const char *name, enum arithmetic_codec *codec)
{
    if (strcmp(name, "bf16") == 0 || strcmp(name, "fp16") == 0) {
        *codec = name[0] == 'b' ? ARITHMETIC_BF16 : ARITHMETIC_F16;
        return true;
    }
    for (uint32_t i = 0; i < CODECS; i++)
        if (strcmp(name, names[i]) == 0) {
            *codec = (enum arithmetic_codec)i;
            return true;
        }
    return false;
}

uint64_t codec_bytes(enum arithmetic_codec codec, uint64_t n)
{
    switch (codec) {
    case ARITHMETIC_F32: return n * sizeof(float);
    case ARITHMETIC_BF16:
    case ARITHMETIC_F16: return n * sizeof(uint16_t);
    case ARITHMETIC_INT8: return n + (n + CODEC_BLOCK - 1) / CODEC_BLOCK * SCALE_BYTES;
    }
    ASSERT(!"a codec");
}

uint64_t codec_grain(enum arithmetic_codec codec)
{
    return codec == ARITHMETIC_INT8 ? CODEC_BLOCK : 1;
}

uint64_t codec_chunk(enum arithmetic_codec codec, uint64_t bytes)
{
    const uint64_t unit = codec_bytes(codec, codec_grain(codec));
    return bytes < unit ? unit : bytes - bytes % unit;
}

uint64_t codec_elements(enum arithmetic_codec codec, uint64_t bytes)
{
    if (codec != ARITHMETIC_INT8)
        return bytes / codec_bytes(codec, 1);
    const uint64_t whole = CODEC_BLOCK + SCALE_BYTES, rest = bytes % whole;
    return bytes / whole * CODEC_BLOCK + (rest > SCALE_BYTES ? rest - SCALE_BYTES : 0);
}

static const unsigned char *int8_block(const void *data, uint64_t i)
{
    return (const unsigned char *)data + i / CODEC_BLOCK * (CODEC_BLOCK + SCALE_BYTES);
}

float codec_element(enum arithmetic_codec codec, const void *data, uint64_t i)
{
    float x, scale;
    uint16_t half;
    switch (codec) {
    case ARITHMETIC_F32: memcpy(&x, (const float *)data + i, sizeof x); return x;
    case ARITHMETIC_BF16:
    case ARITHMETIC_F16:
        memcpy(&half, (const uint16_t *)data + i, sizeof half);
        return codec == ARITHMETIC_BF16 ? element_from_bf16(half) : element_from_f16(half);
    case ARITHMETIC_INT8:
        memcpy(&scale, int8_block(data, i), sizeof scale);
        return element_from_int8((int8_t)int8_block(data, i)[SCALE_BYTES + i % CODEC_BLOCK], scale);
    }
    ASSERT(!"a codec");
}

/* Of a block without a scale, the elements that made it so are marked. */
static bool is_marked(enum arithmetic_codec codec, const void *data, uint64_t i)
{
    return codec != ARITHMETIC_INT8 || int8_block(data, i)[SCALE_BYTES + i % CODEC_BLOCK] != 0;
}

uint64_t codec_first_not_finite(enum arithmetic_codec codec, const void *data, uint64_t n)
{
    uint64_t unmarked = UINT64_MAX; /* only a stranger sends such */
    for (uint64_t i = 0; i < n; i++) {
        if (arithmetic_finite(element_bits(codec_element(codec, data, i)) & 0x7fffffffu))
            continue;
        if (is_marked(codec, data, i))
            return i;
        unmarked = unmarked == UINT64_MAX ? i : unmarked;
    }
    return unmarked;
}
