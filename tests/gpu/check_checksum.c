/* CRC32C by a block of threads against the processor's: lengths near every border, short pieces,
 * addresses off alignment. */
#include "common/checksum.h"
#include "tests/gpu/check.h"

#include <stdlib.h>

enum { TIMED_PIECE = 1 << 18 };

static size_t draw_length(struct random *random)
{
    static const size_t borders[] = {1, 4, 16, 260, 1024, 4096, 16384, 66560, 262144};
    const size_t border = borders[random_below(random, sizeof borders / sizeof *borders)];
    return border + random_below(random, 2) * random_below(random, 20);
}

static void run_checksum(struct random *random)
{
    for (int i = 0; i < 6; i++) {
        const size_t piece = draw_length(random), whole = random_below(random, 3) * piece;
        const size_t bytes = whole + (random_below(random, 3) ? 1 + random_below(random, piece)
                                      : whole                 ? 0
                                                              : piece);
        const size_t pieces = (bytes + piece - 1) / piece;
        unsigned char *data = malloc(bytes);
        if (data == NULL)
            abort();
        for (size_t k = 0; k < bytes; k++)
            data[k] = (unsigned char)random_below(random, 256);
        struct array from = array_of(data, bytes, random_below(random, 3) ? 0 : 1 + i);
        struct array crcs = array_new(pieces * sizeof(uint32_t), 4 * random_below(random, 2));
        expect_ran(
            gpu_crc32c(memory_stream(), from.device, bytes, piece, (uint32_t *)(void *)crcs.device),
            "crc32c", bytes);
        for (size_t p = 0; p < pieces; p++) {
            const size_t at = p * piece, rest = bytes - at;
            ((uint32_t *)(void *)crcs.host)[p] =
                checksum_crc32c(0, data + at, rest < piece ? rest : piece);
        }
        expect_same(&crcs, "crc32c", bytes);
        expect_same(&from, "what crc32c reads", bytes);
        array_end(&from);
        array_end(&crcs);
        free(data);
    }
}

struct timed {
    void *data;
    uint32_t *crcs;
};

static size_t timed_bytes(void)
{
    return memory_timed() * sizeof(float);
}

static void call_checksum(void *context)
{
    const struct timed *t = context;
    (void)gpu_crc32c(memory_stream(), t->data, timed_bytes(), TIMED_PIECE, t->crcs);
}

static double time_checksum(double *bytes)
{
    struct timed t = {.data = timed_floats(memory_timed()),
                      .crcs = memory_get((timed_bytes() / TIMED_PIECE + 1) * sizeof(uint32_t))};
    const double seconds = memory_seconds(call_checksum, &t, 5);
    *bytes = (double)timed_bytes();
    memory_free(t.data);
    memory_free(t.crcs);
    return seconds;
}

const struct check checks_checksum[] = {
    {"CRC32C of pieces", "bits", run_checksum, time_checksum, 0},
    {NULL, NULL, NULL, NULL, 0},
};
