/* The exchange of a group between processes of one test: a board in shared memory on which rounds
 * are pinned. It keeps what common/collective.h says of a round, whoever dies when. */
#ifndef GRADWEIR_INTEGRATION_BOARD_H
#define GRADWEIR_INTEGRATION_BOARD_H

#include "common/collective.h"

struct board;

struct board_place {
    struct board *board;
    uint32_t rank, ranks;
};

/* Before the first fork. Ends the program when there is no memory. */
struct board *board_new(void);
void board_free(struct board *board);

/* This rank of this generation is dead or silent: rounds that lack nobody else are closed at once,
 * however long patience is. */
void board_lose(struct board *board, uint32_t generation, uint32_t rank);

/* collective_exchange; context: struct board_place. */
gradweir_status board_exchange(void *context, struct collective_round *round);

#endif
