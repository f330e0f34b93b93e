/* codec: gradients into a codec and back, in this process, beside a copy. */
#include "tests/bench/floor.h"
#include "tests/bench/gauge.h"

#include "common/arithmetic.h"
#include "common/clock.h"
#include "common/codec.h"

#include <stdlib.h>

static const double reference_s = 0.05;

struct codec_case {
    const struct arithmetic *arithmetic;
    enum arithmetic_codec codec;
    uint64_t elements, sources;
    float *floats; /* `sources` gradients in a row: 64 MiB or more */
    char *encoded; /* as many, each in the room of a float32 one */
    float *decoded;
    uint64_t turn;
};

typedef void codec_part(struct codec_case *it);

static void encode(struct codec_case *it)
{
    const uint64_t at = it->turn++ % it->sources * it->elements;
    it->arithmetic->encode(it->codec, 1.0f, it->floats + at, it->elements,
                           it->encoded + at * sizeof(float));
}

/* With error feedback, as a client does it. */
static void encode_rest(struct codec_case *it)
{
    const uint64_t at = it->turn++ % it->sources * it->elements;
    it->arithmetic->encode_rest(it->codec, it->floats + at, it->elements, it->decoded,
                                it->encoded + at * sizeof(float));
}

static void decode(struct codec_case *it)
{
    const uint64_t at = it->turn++ % it->sources * it->elements;
    it->arithmetic->decode(it->codec, it->encoded + at * sizeof(float), it->elements, it->decoded);
}

/* Payload per second. */
static double rate(struct codec_case *it, codec_part *part, double seconds)
{
    const uint64_t some = it->elements < 65536 ? 65536 / it->elements : 1;
    const uint64_t begin = clock_now_ns();
    uint64_t done = 0, now;
    do {
        for (uint64_t i = 0; i < some; i++)
            part(it);
        done += some;
        now = clock_now_ns();
    } while ((double)(now - begin) < seconds * 1e9);
    return (double)(done * it->elements * sizeof(float)) / (double)(now - begin);
}

static bool make(const struct gauge *gauge, struct codec_case *it)
{
    it->arithmetic = arithmetic_choose(gauge->host.simd);
    ASSERT(codec_find(gauge->dtype, &it->codec)); /* one of the choices */
    it->elements = gauge->elements;
    it->sources = FLOOR_ROTATION / gauge->bytes + 1;
    it->floats = calloc(it->sources * it->elements, sizeof(float));
    it->encoded = calloc(it->sources * it->elements, sizeof(float));
    it->decoded = calloc(it->elements, sizeof(float));
    if (!it->arithmetic || !it->floats || !it->encoded || !it->decoded)
        return false;
    for (uint64_t i = 0; i < it->sources * it->elements; i++)
        it->floats[i] = 1e-3f * (float)((int)(i % 251) - 125);
    for (uint64_t i = 0; i < it->sources; i++)
        encode(it);
    return true;
}

int gauge_codec(const struct gauge *gauge)
{
    struct codec_case it = {.turn = 0};
    struct gauge_values in = {.count = 0}, out = in, fed = in, copies = in, ratio = in;
    struct floor *floor = floor_open(gauge->bytes, FLOOR_SGD);
    const bool made = floor && make(gauge, &it);
    if (!made)
        fprintf(stderr,
                "gradweir-bench: no memory for %llu bytes of gradients, or no such "
                "instructions\n",
                (unsigned long long)gauge->bytes);
    for (uint32_t i = 0; made && i < gauge->rounds; i++) {
        gauge_progress(gauge, i);
        gauge_add(&copies, floor_memcpy_rate(floor, reference_s));
        gauge_add(&in, rate(&it, encode, gauge->seconds / gauge->rounds / 3));
        gauge_add(&fed, rate(&it, encode_rest, gauge->seconds / gauge->rounds / 3));
        gauge_add(&out, rate(&it, decode, gauge->seconds / gauge->rounds / 3));
        gauge_add(&ratio, in.at[i] / copies.at[i]);
    }
    if (made) {
        struct gauge_row row = gauge_row();
        row.goodput_gbps = gauge_median(&in);
        row.floor_gbps = row.memcpy_gbps = gauge_median(&copies);
        row.floor_ratio = gauge_median(&ratio);
        row.ops_per_s = row.goodput_gbps * 1e9 / (double)gauge->bytes;
        gauge_extra(&row, "encode_gbps", row.goodput_gbps);
        gauge_extra(&row, "decode_gbps", gauge_median(&out));
        gauge_extra(&row, "encode_rest_gbps", gauge_median(&fed));
        gauge_extra(&row, "encoded_bytes", (double)codec_bytes(it.codec, it.elements));
        gauge_print(gauge, &row);
    }
    floor_close(floor);
    free(it.floats);
    free(it.encoded);
    free(it.decoded);
    return made ? 0 : 1;
}
