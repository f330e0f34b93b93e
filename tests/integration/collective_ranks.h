/* What the ranks of collective_check do: each role runs in a process of its own, and ends it with 1
 * when something is not as it should be. */
#ifndef GRADWEIR_INTEGRATION_COLLECTIVE_RANKS_H
#define GRADWEIR_INTEGRATION_COLLECTIVE_RANKS_H

#include "tests/integration/board.h"

#include <stdio.h>
#include <unistd.h>

#define GENERATIONS_RUN 50
#define RANKS_MAX       4
#define LARGE           (4u << 20) /* floats: 16 MiB */

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s does not hold (last reason: %s)\n", __FILE__, __LINE__,     \
                    #condition, fail_reason());                                                    \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* What a rank tells the parent, in shared memory. */
struct told {
    volatile uint64_t step;
    volatile bool done;
};

struct bench {
    const char *backend;
    bool ordered; /* sums have the bits of the plain loop */
    struct board *board;
    struct told *told;
    uint64_t timeout_ns, patience_ns;
    uint32_t ranks_max;
};

struct collective_options rank_options(const struct bench *bench, struct board_place *place,
                                       uint32_t generation);
gradweir_status rank_join(const struct bench *bench, struct board_place *place, uint32_t generation,
                          struct collective **group);

/* One sum of n floats over whoever is in the group, its outcome and its input checked. */
gradweir_status rank_reduce(const struct bench *bench, struct collective *group, uint64_t step,
                            size_t n);

typedef void (*role)(struct bench *bench, uint32_t rank, uint32_t ranks);

void joins_alone(struct bench *bench, uint32_t rank, uint32_t ranks);
void conforms(struct bench *bench, uint32_t rank, uint32_t ranks);
void differs(struct bench *bench, uint32_t rank, uint32_t ranks);
void never_comes(struct bench *bench, uint32_t rank, uint32_t ranks);
void counts_wrongly(struct bench *bench, uint32_t rank, uint32_t ranks);
void comes_twice(struct bench *bench, uint32_t rank, uint32_t ranks);
void bad_options(struct bench *bench, uint32_t rank, uint32_t ranks);
void goes_on(struct bench *bench, uint32_t rank, uint32_t ranks);
void comes_back(struct bench *bench, uint32_t rank, uint32_t ranks);
void lives_on(struct bench *bench, uint32_t rank, uint32_t ranks);
void leaves_at_once(struct bench *bench, uint32_t rank, uint32_t ranks);
void dies_soon(struct bench *bench, uint32_t generation, uint32_t ranks);
void hears_nothing(struct bench *bench, uint32_t rank, uint32_t ranks);

#endif
