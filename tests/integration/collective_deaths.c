/* Roles of collective_check: what survivors and returners do, and who dies. */
#include "tests/integration/collective_ranks.h"

#include "common/clock.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Sums until somebody is missed; says who, in time (at once, when it is dead), and goes on without.
 */
static void until_broken(struct bench *bench, struct collective *group, uint32_t rank,
                         const char *name, bool dead)
{
    gradweir_status status = GRADWEIR_OK;
    uint64_t begun_ns = 0;
    for (uint64_t step = 1; status == GRADWEIR_OK; step++) {
        bench->told[rank].step = step;
        begun_ns = clock_now_ns();
        status = rank_reduce(bench, group, step, LARGE / 4);
    }
    const uint64_t took_ns = clock_now_ns() - begun_ns;
    CHECK(status == GRADWEIR_ERR_TIMEOUT || status == GRADWEIR_ERR_LOST);
    CHECK(dead ? took_ns < bench->timeout_ns : took_ns < bench->timeout_ns + 60 * CLOCK_SECOND);
    if (name == NULL) /* this one was stopped, and the others have gone on */
        return;
    CHECK(strstr(fail_reason(), name) != NULL && strstr(fail_reason(), " s behind") != NULL);
    if (rank == 0)
        printf("    %.2f s: %s\n", (double)took_ns / CLOCK_SECOND, fail_reason());
    float data[1] = {0};
    CHECK(collective_reduce(group, 1, data, data, 1) == GRADWEIR_ERR_STATE);
    CHECK(collective_shrink(group) == GRADWEIR_OK);
}

void goes_on(struct bench *bench, uint32_t rank, uint32_t ranks)
{
    struct board_place place = {.rank = rank, .ranks = ranks};
    struct collective *group;
    CHECK(rank_join(bench, &place, 0, &group) == GRADWEIR_OK);
    until_broken(bench, group, rank, "rank 2 of 4: step ", true);
    struct collective_info info;
    collective_tell(group, &info);
    CHECK(info.ranks == 3 && info.names[2] == 3 && info.rank == (rank == 3 ? 2 : rank));
    CHECK(info.step_most - info.step_least <= 1);
    for (uint64_t step = 1; step <= 5; step++)
        CHECK(rank_reduce(bench, group, info.step_most + step, 100000 + step) == GRADWEIR_OK);
    collective_leave(group);
    bench->told[rank].done = true;
}

/* The same, and then whoever was stopped comes back in the next generation. */
void comes_back(struct bench *bench, uint32_t rank, uint32_t ranks)
{
    struct board_place place = {.rank = rank, .ranks = ranks};
    struct collective *group;
    CHECK(rank_join(bench, &place, 0, &group) == GRADWEIR_OK);
    until_broken(bench, group, rank, rank == 2 ? NULL : "rank 2 of 4: step ", false);
    if (rank == 2) {
        CHECK(strstr(fail_reason(), "gone on without it") != NULL);
        CHECK(collective_shrink(group) == GRADWEIR_ERR_STATE);
    } else {
        CHECK(rank_reduce(bench, group, 1000, 1001) == GRADWEIR_OK);
    }
    collective_leave(group);
    bench->told[rank].done = true;
    CHECK(rank_join(bench, &place, 1, &group) == GRADWEIR_OK);
    for (uint64_t step = 1; step <= 5; step++)
        CHECK(rank_reduce(bench, group, step, 1000) == GRADWEIR_OK);
    collective_leave(group);
}

static size_t descriptors(void)
{
    size_t n = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n;
}

static size_t resident_kib(void)
{
    size_t pages = 0, size = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%zu %zu", &size, &pages) == 2);
    fclose(file);
    return pages * 4;
}

/* Ranks 0 and 1 live through all generations; rank 2 is another process in each, and dies in it. */
void lives_on(struct bench *bench, uint32_t rank, uint32_t ranks)
{
    struct board_place place = {.rank = rank, .ranks = ranks};
    size_t files = 0, kib = 0;
    for (uint32_t g = 0; g < GENERATIONS_RUN; g++) {
        struct collective *group;
        CHECK(rank_join(bench, &place, g, &group) == GRADWEIR_OK);
        gradweir_status status = GRADWEIR_OK;
        for (uint64_t step = 1; status == GRADWEIR_OK; step++)
            status = rank_reduce(bench, group, step, 300000);
        CHECK(strstr(fail_reason(), "rank 2 of 3: step ") != NULL);
        CHECK(collective_shrink(group) == GRADWEIR_OK);
        CHECK(rank_reduce(bench, group, 7, 1000) == GRADWEIR_OK);
        collective_leave(group);
        bench->told[rank].step = g + 1;
        if (g == 9) {
            files = descriptors();
            kib = resident_kib();
        }
    }
    const uint64_t end_ns = clock_now_ns() + 60 * CLOCK_SECOND;
    while (descriptors() != files && clock_now_ns() < end_ns) /* gloo closes some in its thread */
        usleep(1000);
    CHECK(descriptors() == files);
    CHECK(resident_kib() < kib + 8192);
    if (rank == 0)
        printf("    %zu descriptors, %zu KiB after 10 generations; %zu and %zu after %d\n", files,
               kib, descriptors(), resident_kib(), GENERATIONS_RUN);
}

/* Whoever has done the last call leaves at once, and costs nobody that call. */
void leaves_at_once(struct bench *bench, uint32_t rank, uint32_t ranks)
{
    struct board_place place = {.rank = rank, .ranks = ranks};
    for (uint32_t g = 0; g < GENERATIONS_RUN; g++) {
        struct collective *group;
        CHECK(rank_join(bench, &place, g, &group) == GRADWEIR_OK);
        for (uint64_t step = 1; step <= 3; step++)
            CHECK(rank_reduce(bench, group, step, 1000) == GRADWEIR_OK);
        collective_leave(group);
    }
}

/* SIGALRM ends this process as kill -9 would: at any place, and nothing is tidied up. */
void dies_soon(struct bench *bench, uint32_t generation, uint32_t ranks)
{
    struct board_place place = {.rank = ranks - 1, .ranks = ranks};
    struct collective *group;
    CHECK(rank_join(bench, &place, generation, &group) == GRADWEIR_OK);
    /* A call is done when it is done everywhere: from here on nobody's join can fail by this death.
     */
    CHECK(rank_reduce(bench, group, 1, 300000) == GRADWEIR_OK);
    ualarm(2000 + generation * 977 % 40000, 0);
    for (uint64_t step = 2;; step++)
        CHECK(rank_reduce(bench, group, step, 300000) == GRADWEIR_OK);
}

/* An exchange that does not get through once. */
struct shaky {
    struct board_place place;
    bool fails;
};

static gradweir_status shaky_exchange(void *context, struct collective_round *round)
{
    struct shaky *shaky = context;
    if (!shaky->fails)
        return board_exchange(&shaky->place, round);
    shaky->fails = false;
    return fail(GRADWEIR_ERR_UNREACHABLE, "nobody keeps rounds here");
}

/* Rank 2 ends without a word; the roll-call of rank 1 does not get through, and is tried again. */
void hears_nothing(struct bench *bench, uint32_t rank, uint32_t ranks)
{
    struct shaky shaky = {.place = {.rank = rank, .ranks = ranks}};
    struct collective_options options = rank_options(bench, &shaky.place, 0);
    options.exchange = shaky_exchange;
    options.exchange_context = &shaky;
    struct collective *group;
    CHECK(collective_join(&options, &group) == GRADWEIR_OK);
    CHECK(rank_reduce(bench, group, 1, 1000) == GRADWEIR_OK);
    if (rank == 2) {
        board_lose(bench->board, 0, 2);
        return;
    }
    shaky.fails = rank == 1;
    const gradweir_status status = rank_reduce(bench, group, 2, 1000);
    CHECK(status == (rank == 1 ? GRADWEIR_ERR_UNREACHABLE : GRADWEIR_ERR_LOST));
    CHECK(strstr(fail_reason(), rank == 1 ? "nobody keeps" : "rank 2 of 3: step 1, ") != NULL);
    CHECK(collective_shrink(group) == GRADWEIR_OK);
    struct collective_info info;
    collective_tell(group, &info);
    CHECK(info.ranks == 2 && info.names[1] == 1 && info.step_least == 1);
    CHECK(rank_reduce(bench, group, 3, 1000) == GRADWEIR_OK);
    collective_leave(group);
}
