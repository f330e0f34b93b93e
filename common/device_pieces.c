/* What all device backends count alike, the pieces of a step that LAMB's sums are told for, and
 * what they ask alike. */
#include "common/codec.h"
#include "common/device.h"

size_t device_block(size_t asked)
{
    const size_t block = asked == 0 ? ARITHMETIC_BLOCK : asked;
    return block > ARITHMETIC_BLOCK || ARITHMETIC_BLOCK % block != 0 ? 0 : block;
}

bool device_piece(const struct arithmetic_work *work, size_t block, size_t at, size_t end,
                  struct arithmetic_range *piece)
{
    const size_t r = arithmetic_range_at(work, at);
    if (at >= end || r == work->ranges_n)
        return false;
    const size_t border = (at / block + 1) * block;
    *piece = work->ranges[r];
    piece->begin = at;
    if (piece->end > border)
        piece->end = border;
    if (piece->end > end)
        piece->end = end;
    return true;
}

size_t device_pieces(const struct arithmetic_work *work, size_t block, size_t begin, size_t end)
{
    size_t n = 0;
    struct arithmetic_range piece;
    for (size_t at = begin; device_piece(work, block, at, end, &piece); at = (size_t)piece.end)
        n++;
    return n;
}

gradweir_status device_check_encode(const struct device_encode *encode)
{
    if (encode->to == NULL || encode->sums == NULL || encode->crcs == NULL || encode->n == 0)
        return fail(GRADWEIR_ERR_INVALID, "encode: nothing, or no memory given");
    if (encode->rest != NULL && encode->codec == ARITHMETIC_F32)
        return fail(GRADWEIR_ERR_INVALID, "encode: float32 leaves nothing owed");
    if (encode->from == NULL && encode->codec != ARITHMETIC_F32)
        return fail(GRADWEIR_ERR_INVALID, "encode: only float32 may lie in its place already");
    if (encode->piece == 0 || encode->piece % CODEC_BLOCK != 0)
        return fail(GRADWEIR_ERR_INVALID, "encode: checksums of %zu elements each, not of whole %d",
                    encode->piece, CODEC_BLOCK);
    return GRADWEIR_OK;
}

gradweir_status device_check_give_back(const struct device_give_back *give_back)
{
    return give_back->sent != NULL && give_back->rest != NULL && give_back->n > 0
               ? GRADWEIR_OK
               : fail(GRADWEIR_ERR_INVALID, "give back: nothing, or no memory given");
}
