/* How the ranks of a group find one another: rounds in which each gives some bytes and gets
 * everybody's, kept by the coordinator. A part of message.h. */
#ifndef GRADWEIR_COMMON_SWAP_H
#define GRADWEIR_COMMON_SWAP_H

#include <stdint.h>

enum {
    IDENTITY_MAX = 64,     /* a worker's name for people, e.g. "worker-3" */
    RANKS_MAX = 16,        /* of one group */
    SWAP_BYTES_MAX = 4096, /* that one rank gives the others in a round of theirs */
    SWAP_PATIENCE_MS_MAX = 3600000
};

/* A round in which the ranks of a group swap bytes; it needs no JOIN. Meeting 0 asks for a meeting:
 * its answer names one, by chance, for all rounds that follow. A round is closed when all that were
 * asked have come, or when the patience of the first that came is over. */
struct message_swap {
    char identity[IDENTITY_MAX]; /* of the worker that the ranks are */
    uint64_t meeting;
    uint32_t round; /* of the meeting, from 1 on; 0 with meeting 0 */
    uint32_t rank, ranks;
    uint32_t asked; /* a bit per rank; 0, with meeting 0 only: all, unless another rank knows */
    uint64_t
        instance; /* by chance, another for each round: says it again, or is it somebody else */
    uint32_t patience_ms;
    uint32_t bytes;
    uint8_t data[SWAP_BYTES_MAX];
};

/* Where ranks that know who is left met and some did not come, `asked` are those that did: the
 * meeting is whole without the others. As many as there are bits in `here`, one for each rank that
 * came. status: OK; else alone: ERR_LOST (closed without this rank), ERR_INVALID (its place is
 * taken), ERR_MISMATCH (others count other ranks), ERR_FULL (no room for a round). */
struct message_swapped {
    int32_t status;
    uint64_t meeting;
    uint32_t round;
    uint64_t instance; /* of the SWAP that this answers */
    uint32_t asked;    /* a bit per rank that was waited for */
    uint32_t here;     /* a bit per rank that came */
    uint32_t rank;     /* whose bytes these are */
    uint32_t bytes;
    uint8_t data[SWAP_BYTES_MAX];
};

/* Ranks wait in a meeting for the ranks of a worker that is running. */
struct message_called {
    uint32_t waiting; /* a bit per rank */
};

#endif
