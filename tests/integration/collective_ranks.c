/* Roles of collective_check: conformance, and ranks that differ. */
#include "tests/integration/collective_ranks.h"

#include "common/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct collective_options rank_options(const struct bench *bench, struct board_place *place,
                                       uint32_t generation)
{
    place->board = bench->board;
    struct collective_options options = collective_defaults();
    options.backend = bench->backend;
    options.rank = place->rank;
    options.ranks = place->ranks;
    options.timeout_ns = bench->timeout_ns;
    options.patience_ns = bench->patience_ns;
    options.generation = generation;
    options.exchange = board_exchange;
    options.exchange_context = place;
    return options;
}

gradweir_status rank_join(const struct bench *bench, struct board_place *place, uint32_t generation,
                          struct collective **group)
{
    const struct collective_options options = rank_options(bench, place, generation);
    return collective_join(&options, group);
}

/* Element i of what rank r gives: any magnitude, so that the order of a sum shows in its bits. */
static float element(uint64_t seed, uint32_t r, size_t i)
{
    uint64_t x = (seed * 64 + r + 1) * UINT64_C(0x9e3779b97f4a7c15) + i;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    const float scale[4] = {1e-3f, 1.0f, 37.0f, 1e4f};
    return ((float)(x >> 40) / 16777216.0f - 0.5f) * scale[x & 3];
}

static float sum_of(uint64_t seed, const uint32_t *names, uint32_t ranks, size_t i)
{
    float sum = element(seed, names[0], i);
    for (uint32_t r = 1; r < ranks; r++)
        sum += element(seed, names[r], i);
    return sum;
}

static float *floats(size_t n)
{
    float *memory = malloc((n + 1) * sizeof *memory);
    CHECK(memory != NULL);
    memory[n] = 12345.0f; /* and nobody writes there */
    return memory;
}

static void give_back(float *memory, size_t n)
{
    CHECK(memory[n] == 12345.0f);
    free(memory);
}

static bool same(const struct bench *bench, float is, float should)
{
    if (bench->ordered)
        return memcmp(&is, &should, sizeof is) == 0;
    const float apart = is > should ? is - should : should - is;
    return apart <= 1e-2f;
}

static void fill(float *memory, uint64_t seed, uint32_t name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memory[i] = element(seed, name, i);
}

gradweir_status rank_reduce(const struct bench *bench, struct collective *group, uint64_t step,
                            size_t n)
{
    struct collective_info info;
    collective_tell(group, &info);
    float *from = floats(n), *to = floats(n);
    fill(from, step, info.names[info.rank], n);
    const gradweir_status status = collective_reduce(group, step, from, to, n);
    for (size_t i = 0; status == GRADWEIR_OK && i<n; i += n> 100000 ? 997 : 1)
        CHECK(same(bench, to[i], sum_of(step, info.names, info.ranks, i)));
    for (size_t i = 0; i<n; i += n> 100000 ? 997 : 1)
        CHECK(from[i] == element(step, info.names[info.rank], i));
    give_back(from, n);
    give_back(to, n);
    return status;
}

static uint64_t digest(const float *memory, size_t n)
{
    uint64_t sum = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &memory[i], sizeof bits);
        sum = (sum ^ bits) * UINT64_C(1099511628211);
    }
    return sum;
}

/* In place, twice, and the same bits at all ranks: the digests are gathered as floats. */
static void same_bits_everywhere(struct collective *group, uint64_t step, size_t n)
{
    struct collective_info info;
    collective_tell(group, &info);
    float *data = floats(n);
    uint64_t digests[2];
    for (int i = 0; i < 2; i++) {
        fill(data, step, info.rank, n);
        CHECK(collective_reduce(group, step, data, data, n) == GRADWEIR_OK);
        digests[i] = digest(data, n);
    }
    CHECK(digests[0] == digests[1]);
    give_back(data, n);
    float mine[4], all[4 * RANKS_MAX];
    for (int i = 0; i < 4; i++)
        mine[i] = (float)(digests[0] >> 16 * i & 0xffff);
    const size_t counts[RANKS_MAX] = {4, 4, 4, 4};
    CHECK(collective_all_gather(group, step, mine, all, counts) == GRADWEIR_OK);
    for (uint32_t r = 0; r < info.ranks; r++)
        CHECK(memcmp(all + 4 * r, mine, sizeof mine) == 0);
}

static void parts(const struct bench *bench, struct collective *group, uint64_t step,
                  const size_t *counts)
{
    struct collective_info info;
    collective_tell(group, &info);
    size_t n = 0, begin = 0;
    for (uint32_t r = 0; r < info.ranks; r++) {
        begin += r < info.rank ? counts[r] : 0;
        n += counts[r];
    }
    const size_t own = counts[info.rank];
    float *from = floats(n), *part = floats(own), *whole = floats(n);
    fill(from, step, info.rank, n);
    CHECK(collective_reduce_scatter(group, step, from, part, counts) == GRADWEIR_OK);
    for (size_t i = 0; i < own; i++)
        CHECK(same(bench, part[i], sum_of(step, info.names, info.ranks, begin + i)));
    CHECK(collective_all_gather(group, step, part, whole, counts) == GRADWEIR_OK);
    for (size_t i = 0; i<n; i += n> 100000 ? 997 : 1)
        CHECK(same(bench, whole[i], sum_of(step, info.names, info.ranks, i)));
    /* The same again where everything lies in its place already. */
    CHECK(collective_reduce_scatter(group, step, from, from + begin, counts) == GRADWEIR_OK);
    CHECK(collective_all_gather(group, step, from + begin, from, counts) == GRADWEIR_OK);
    CHECK(memcmp(from, whole, n * sizeof *from) == 0);
    give_back(from, n);
    give_back(part, own);
    give_back(whole, n);
}

static void broadcasts(struct collective *group, uint64_t step, size_t n)
{
    struct collective_info info;
    collective_tell(group, &info);
    float *data = floats(n);
    for (uint32_t root = 0; root < info.ranks; root++) {
        fill(data, step, info.rank, n);
        CHECK(collective_broadcast(group, step, data, n, root) == GRADWEIR_OK);
        for (size_t i = 0; i < n; i++)
            CHECK(data[i] == element(step, root, i));
    }
    CHECK(collective_broadcast(group, step, data, n, info.ranks) == GRADWEIR_ERR_INVALID);
    give_back(data, n);
}

/* Whether this process can be a rank at all. */
void joins_alone(struct bench *bench, uint32_t rank, uint32_t ranks)
{
    struct board_place place = {.rank = 0, .ranks = ranks};
    struct collective *group;
    if (rank_join(bench, &place, 0, &group) != GRADWEIR_OK) {
        printf("rank %u cannot join: %s\n", rank, fail_reason());
        fflush(stdout);
        _exit(1);
    }
    collective_leave(group);
}

void conforms(struct bench *bench, uint32_t rank, uint32_t ranks)
{
    struct board_place place = {.rank = rank, .ranks = ranks};
    struct collective *group;
    CHECK(rank_join(bench, &place, 0, &group) == GRADWEIR_OK);
    const size_t sizes[] = {0, 1, 2, 3, 5, 1000, 65536, 3 * 65536 + 7, LARGE};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK(rank_reduce(bench, group, i + 1, sizes[i]) == GRADWEIR_OK);
        same_bits_everywhere(group, i + 1, sizes[i] < LARGE ? sizes[i] : LARGE / 4);
    }
    const size_t counts[][RANKS_MAX] = {{1, 1, 1, 1},
                                        {0, 5, 0, 3},
                                        {7, 0, 0, 0},
                                        {0, 0, 0, 0},
                                        {65537, 3, 200000, 65536},
                                        {1000001, 999999, 5, 500000}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        parts(bench, group, 100 + i, counts[i]);
    for (size_t i = 0; i < 6; i++)
        broadcasts(group, 200 + i, sizes[i]);
    struct collective_info info;
    collective_tell(group, &info);
    CHECK(info.rank == rank && info.ranks == ranks && !info.broken);
    CHECK(collective_shrink(group) == GRADWEIR_ERR_STATE);
    collective_leave(group);
}

/* One rank sums another length, or another step: all are told, and the group is as good as before.
 */
void differs(struct bench *bench, uint32_t rank, uint32_t ranks)
{
    struct board_place place = {.rank = rank, .ranks = ranks};
    struct collective *group;
    CHECK(rank_join(bench, &place, 0, &group) == GRADWEIR_OK);
    float data[8] = {0};
    CHECK(collective_reduce(group, 1, data, data, rank == 1 ? 7 : 8) == GRADWEIR_ERR_MISMATCH);
    CHECK(collective_reduce(group, rank == 0 ? 3 : 2, data, data, 8) == GRADWEIR_ERR_MISMATCH);
    if (rank == 0)
        CHECK(collective_broadcast(group, 3, data, 8, 0) == GRADWEIR_ERR_MISMATCH);
    else
        CHECK(collective_reduce(group, 3, data, data, 8) == GRADWEIR_ERR_MISMATCH);
    CHECK(rank_reduce(bench, group, 4, 1000) == GRADWEIR_OK);
    collective_leave(group);
}

void never_comes(struct bench *bench, uint32_t rank, uint32_t ranks)
{
    if (rank == ranks - 1)
        return;
    struct board_place place = {.rank = rank, .ranks = ranks};
    struct collective *group;
    const uint64_t until_ns = clock_now_ns() + bench->timeout_ns + 60 * CLOCK_SECOND;
    CHECK(rank_join(bench, &place, 0, &group) == GRADWEIR_ERR_TIMEOUT && clock_now_ns() < until_ns);
    CHECK(strstr(fail_reason(), "rank 3 of 4 never came") != NULL);
}

void counts_wrongly(struct bench *bench, uint32_t rank, uint32_t ranks)
{
    struct board_place place = {.rank = rank, .ranks = rank == 1 ? ranks + 1 : ranks};
    struct collective *group;
    CHECK(rank_join(bench, &place, 0, &group) == GRADWEIR_ERR_MISMATCH);
    CHECK(strstr(fail_reason(), "expects 2") != NULL);
}

/* Rank 1 is there twice, rank 2 never. */
void comes_twice(struct bench *bench, uint32_t rank, uint32_t ranks)
{
    struct board_place place = {.rank = rank == 2 ? 1 : rank, .ranks = ranks};
    struct collective *group;
    const gradweir_status status = rank_join(bench, &place, 0, &group);
    CHECK(status == GRADWEIR_ERR_TIMEOUT || status == GRADWEIR_ERR_INVALID);
    CHECK(rank != 0 || strstr(fail_reason(), "rank 2 of 3 never came") != NULL);
    CHECK(status != GRADWEIR_ERR_INVALID || strstr(fail_reason(), "rank 1 already") != NULL);
}

void bad_options(struct bench *bench, uint32_t rank, uint32_t ranks)
{
    struct board_place place = {.board = bench->board, .rank = rank, .ranks = ranks};
    struct collective *group = NULL;
    struct collective_options good = collective_defaults();
    good.backend = bench->backend;
    good.exchange = board_exchange;
    good.exchange_context = &place;
    struct collective_options options = good;
    options.backend = "none";
    CHECK(collective_join(&options, &group) == GRADWEIR_ERR_UNSUPPORTED);
    options = good;
    options.rank = 1;
    CHECK(collective_join(&options, &group) == GRADWEIR_ERR_INVALID);
    options = good;
    options.ranks = COLLECTIVE_RANKS_MAX + 1;
    CHECK(collective_join(&options, &group) == GRADWEIR_ERR_INVALID);
    options = good;
    options.patience_ns = options.timeout_ns;
    CHECK(collective_join(&options, &group) == GRADWEIR_ERR_INVALID);
    good.exchange = NULL;
    CHECK(collective_join(&good, &group) == GRADWEIR_ERR_INVALID);
    collective_leave(NULL);
}
