/* The table of device backends, and what all of them count alike. The one #ifdef of each backend is
 * here. */
#include "common/device.h"

#include <string.h>

static const struct device *const devices[] = {
    &device_cpu,
#ifdef GRADWEIR_CUDA
    &device_cuda,
#endif
};

const struct device *device_at(size_t i)
{
    return i < sizeof devices / sizeof *devices ? devices[i] : NULL;
}

const struct device *device_find(const char *name)
{
    for (size_t i = 0; device_at(i) != NULL; i++)
        if (strcmp(device_at(i)->name, name) == 0)
            return device_at(i);
    return NULL;
}

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
