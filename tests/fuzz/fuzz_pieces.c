/* The pieces that a PULL wants: whatever is taken for sound lies inside the range, and gathering it
 * reads nothing else. The first 8 bytes are the range: u32 elements, u32 moments, both taken small.
 */
#include "common/pieces.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

enum { ELEMENTS_MAX = 4096, MOMENTS_MAX = 64, AT_A_TIME = 4096 };

static void gather(const struct piece *piece, const struct piece_range *range, const uint8_t *body)
{
    static uint8_t room[AT_A_TIME];
    for (uint64_t at = 0, n; at < piece->length; at += n) {
        const uint64_t rest = piece->length - at;
        n = rest < AT_A_TIME ? rest : AT_A_TIME;
        piece_gather(piece, body, at, n, room);
        if (piece_is_floats(piece, range))
            piece_gather_half(piece, body, at, n, room);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static struct piece list[PIECES_MAX];
    uint32_t sizes[2];
    if (count < sizeof sizes)
        return 0;
    memcpy(sizes, bytes, sizeof sizes);
    const struct piece_range range = {.elements = sizes[0] % (ELEMENTS_MAX + 1),
                                      .moments = sizes[1] % (MOMENTS_MAX + 1)};
    const size_t pieces = (count - sizeof sizes) / sizeof *list;
    const uint32_t n = (uint32_t)(pieces < PIECES_MAX ? pieces : PIECES_MAX);
    memcpy(list, bytes + sizeof sizes, n * sizeof *list);
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += list[i].length;
    if (!pieces_sound(list, n, &range, total))
        return 0;
    const size_t body_bytes =
        range.elements * sizeof(float) + range.moments * sizeof(struct moments);
    uint8_t *body = calloc(1, body_bytes); /* its own, so that a sanitizer sees its ends */
    ASSERT(body && total <= body_bytes);
    for (uint32_t i = 0; i < n; i++)
        gather(&list[i], &range, body);
    free(body);
    return 0;
}
