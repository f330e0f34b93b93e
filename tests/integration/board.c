/* Rounds in shared memory, under a robust lock. Waiting is looking again: a condition that a killed
 * process waited for may never be signalled again. */
#include "tests/integration/board.h"

#include "common/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define GENERATIONS 128
#define ROUNDS      12 /* of a generation */
#define RANKS       8
#define BYTES_MAX   4096

struct pinned {
    bool begun, closed;
    bool asked[RANKS], here[RANKS];
    size_t bytes;
    uint64_t deadline_ns;
    char blobs[RANKS][BYTES_MAX];
};

struct board {
    pthread_mutex_t lock;
    bool lost[GENERATIONS][RANKS];
    struct pinned rounds[GENERATIONS][ROUNDS];
};

struct board *board_new(void)
{
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT(board != MAP_FAILED);
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&board->lock, &how);
    pthread_mutexattr_destroy(&how);
    return board;
}

static void lock(struct board *board)
{
    if (pthread_mutex_lock(&board->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&board->lock);
}

void board_lose(struct board *board, uint32_t generation, uint32_t rank)
{
    lock(board);
    board->lost[generation][rank] = true;
    pthread_mutex_unlock(&board->lock);
}

void board_free(struct board *board)
{
    munmap(board, sizeof *board);
}

static gradweir_status pin(struct pinned *pinned, uint32_t rank, const bool *asked,
                           const struct collective_round *round)
{
    if (pinned->closed)
        return fail(GRADWEIR_ERR_LOST, "board: the round was closed without rank %" PRIu32, rank);
    if (pinned->here[rank])
        return fail(GRADWEIR_ERR_INVALID, "board: there is a rank %" PRIu32 " already", rank);
    if (!pinned->begun) {
        memcpy(pinned->asked, asked, sizeof pinned->asked);
        pinned->bytes = round->bytes;
        pinned->deadline_ns = round->deadline_ns;
        pinned->begun = true;
    }
    if (pinned->bytes != round->bytes)
        return fail(GRADWEIR_ERR_MISMATCH, "board: ranks bring other lengths");
    memcpy(pinned->blobs[rank], round->mine, round->bytes);
    pinned->here[rank] = true;
    /* Who asks for others than the first shall not wait for them: let all see that. */
    if (memcmp(pinned->asked, asked, sizeof pinned->asked) != 0)
        pinned->closed = true;
    return GRADWEIR_OK;
}

static bool all_here(const struct pinned *pinned, const bool *lost)
{
    for (uint32_t r = 0; r < RANKS; r++)
        if (pinned->asked[r] && !pinned->here[r] && !lost[r])
            return false;
    return true;
}

static void wait_closed(struct board *board, struct pinned *pinned, const bool *lost)
{
    const struct timespec moment = {.tv_nsec = 500000};
    while (!pinned->closed) {
        if (all_here(pinned, lost) || deadline_passed(clock_now_ns(), pinned->deadline_ns)) {
            pinned->closed = true;
            break;
        }
        pthread_mutex_unlock(&board->lock);
        nanosleep(&moment, NULL);
        lock(board);
    }
}

gradweir_status board_exchange(void *context, struct collective_round *round)
{
    const struct board_place *place = context;
    const uint64_t generation = round->number >> 32, i = round->number & UINT32_MAX;
    if (generation >= GENERATIONS || i >= ROUNDS || round->bytes > BYTES_MAX)
        return fail(GRADWEIR_ERR_INVALID, "board: no place for round %" PRIu64 ".%" PRIu64,
                    generation, i);
    bool asked[RANKS] = {false};
    memcpy(asked, round->here, place->ranks * sizeof *asked);
    struct pinned *pinned = &place->board->rounds[generation][i];
    lock(place->board);
    const gradweir_status status = pin(pinned, place->rank, asked, round);
    if (status == GRADWEIR_OK) {
        wait_closed(place->board, pinned, place->board->lost[generation]);
        for (uint32_t r = 0; r < place->ranks; r++) {
            round->here[r] = asked[r] && pinned->here[r];
            if (round->here[r])
                memcpy((char *)round->all + r * round->bytes, pinned->blobs[r], round->bytes);
        }
    }
    pthread_mutex_unlock(&place->board->lock);
    return status;
}
