/* CRC32C of stretches of GPU memory, a thread block for each: words go to its threads by turns, as
 * common/element_checksum.h says, so that each byte is read once and in a row with its neighbours.
 * Four lanes are a thread's, which are 16 bytes of a load. */
#include "common/element_checksum.h"
#include "gpu/kernels.h"

namespace
{

constexpr int THREADS = ELEMENT_CRC_COLUMNS;
constexpr int OWN = 4; /* lanes of a thread */
constexpr uint64_t ROUND = THREADS * OWN * sizeof(uint32_t);
constexpr int LEVELS = 8; /* of the tree over the threads */

static_assert(1 << LEVELS == THREADS, "a tree over all threads");

struct task {
    const unsigned char *data;
    uint64_t bytes, piece;
    uint32_t word, round;    /* x^32; x^(8 ROUND) */
    uint32_t levels[LEVELS]; /* what the left half of a pair is multiplied by */
    uint32_t whole, last;    /* x^(8 bytes) of a piece, and of the last one */
    uint32_t *crcs;
};

struct room {
    uint32_t table[ELEMENT_CRC_ROWS][ELEMENT_CRC_COLUMNS];
    uint32_t values[THREADS];
};

/* A thread's words of a round: zeros as far as it begins ahead of the text. at: from the text's
 * begin, maybe below 0. */
__device__ void read_wide(const unsigned char *text, int64_t at, uint32_t words[OWN])
{
    uint4 four = make_uint4(0, 0, 0, 0);
    if (at >= 0)
        four = __ldcs(reinterpret_cast<const uint4 *>(text + at));
    words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
}

__device__ void read_bytes(const unsigned char *text, int64_t at, uint32_t words[OWN])
{
    for (int j = 0; j < OWN; j++) {
        words[j] = 0;
        for (int k = 0; k < 4; k++)
            if (at + 4 * j + k >= 0)
                words[j] |= static_cast<uint32_t>(text[at + 4 * j + k]) << (8 * k);
    }
}

/* This thread's four lanes over the text, joined to one. */
template <bool WIDE>
__device__ uint32_t pass_lanes(const room &shared, const task &task, const unsigned char *text,
                               uint64_t length)
{
    const uint64_t rounds = (length + ROUND - 1) / ROUND;
    int64_t at = static_cast<int64_t>(threadIdx.x * OWN * sizeof(uint32_t)) -
                 static_cast<int64_t>(rounds * ROUND - length);
    uint32_t lanes[OWN] = {0, 0, 0, 0};
#pragma unroll 4
    for (uint64_t round = 0; round < rounds; round++, at += ROUND) {
        uint32_t words[OWN];
        if constexpr (WIDE)
            read_wide(text, at, words);
        else
            read_bytes(text, at, words);
        for (int j = 0; j < OWN; j++)
            lanes[j] = element_crc_ahead(shared.table, lanes[j]) ^ words[j];
    }
    for (int j = 1; j < OWN; j++)
        lanes[0] = element_crc_join(lanes[0], lanes[j], task.word);
    return lanes[0];
}

/* Neighbours are joined, then pairs of neighbours, and so on. */
__device__ void join_threads(room &shared, const task &task)
{
    for (int level = 0; level < LEVELS; level++) {
        const unsigned width = 1u << level;
        __syncthreads();
        if (threadIdx.x % (2 * width) == 0)
            shared.values[threadIdx.x] = element_crc_join(
                shared.values[threadIdx.x], shared.values[threadIdx.x + width], task.levels[level]);
    }
}

__global__ void __launch_bounds__(THREADS) checksum_kernel(const __grid_constant__ task task)
{
    __shared__ room shared;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * task.piece;
    const bool ends = task.bytes - first <= task.piece;
    const uint64_t length = ends ? task.bytes - first : task.piece;
    const unsigned char *text = task.data + first;
    const bool wide = length % 16 == 0 && reinterpret_cast<uintptr_t>(text) % 16 == 0;
    for (uint32_t row = 0; row < ELEMENT_CRC_ROWS; row++)
        shared.table[row][threadIdx.x] = element_crc_entry(task.round, row, threadIdx.x);
    __syncthreads();
    shared.values[threadIdx.x] = wide ? pass_lanes<true>(shared, task, text, length)
                                      : pass_lanes<false>(shared, task, text, length);
    join_threads(shared, task);
    if (threadIdx.x == 0)
        task.crcs[blockIdx.x] =
            element_crc_sum(shared.values[0], task.word, ends ? task.last : task.whole);
}

} // namespace

extern "C" int gpu_crc32c(gpu_stream stream, const void *data, uint64_t bytes, uint64_t piece,
                          uint32_t *crcs)
{
    if (bytes == 0)
        return 0;
    const uint64_t pieces = (bytes - 1) / piece + 1;
    task task = {.data = static_cast<const unsigned char *>(data),
                 .bytes = bytes,
                 .piece = piece,
                 .word = element_crc_power(sizeof(uint32_t)),
                 .round = element_crc_power(ROUND),
                 .levels = {},
                 .whole = element_crc_power(piece),
                 .last = element_crc_power(bytes - (pieces - 1) * piece),
                 .crcs = crcs};
    for (int level = 0; level < LEVELS; level++)
        task.levels[level] = element_crc_power(OWN * sizeof(uint32_t) << level);
    checksum_kernel<<<static_cast<unsigned>(pieces), THREADS, 0, stream>>>(task);
    return cudaGetLastError();
}
