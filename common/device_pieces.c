/* What all device backends count alike: the pieces of a step that LAMB's sums are told for. */
#include "common/device.h"

bool device_piece(const struct arithmetic_work *work, size_t at, size_t end,
                  struct arithmetic_range *piece)
{
    const size_t r = arithmetic_range_at(work, at);
    if (at >= end || r == work->ranges_n)
        return false;
    const size_t border = (at / ARITHMETIC_BLOCK + 1) * ARITHMETIC_BLOCK;
    *piece = work->ranges[r];
    piece->begin = at;
    if (piece->end > border)
        piece->end = border;
    if (piece->end > end)
        piece->end = end;
    return true;
}

size_t device_pieces(const struct arithmetic_work *work, size_t begin, size_t end)
{
    size_t n = 0;
    struct arithmetic_range piece;
    for (size_t at = begin; device_piece(work, at, end, &piece); at = (size_t)piece.end)
        n++;
    return n;
}
