/* Rounds in which the ranks of a group swap bytes: how they meet, and how they tell one another
 * where they listen. No record of the log knows of them, and a coordinator that comes after this
 * one begins without: whoever waits says its part again.
 *
 *   OPEN --all that are asked have come, or the first one's patience is over--> CLOSED --room is
 *   wanted--> FREE. All that came get the same answer, also when they ask for it again; whoever
 *   comes later, or takes another's place, is told so. Of a round whose room was wanted no more is
 *   kept than how far its meeting had come, so that nobody who comes later still opens it anew, and
 *   takes the others for dead.
 *
 * A meeting is a round whose number is made here, when it opens. Ranks that only know how many they
 * are wait for all; those that know who is left say so, and are waited for alone. */
#include "server/coordinator/order_internal.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 32, ROUNDS_OF_ONE = 4, PASTS = 256 };
enum round_state { ROUND_FREE = 0, ROUND_OPEN, ROUND_CLOSED };

struct swap_round {
    uint32_t state; /* enum round_state */
    char identity[IDENTITY_MAX];
    uint64_t meeting;
    uint32_t number; /* 0: it is the meeting itself */
    uint32_t ranks, asked, here;
    bool known; /* somebody knows who is left: `asked` are these */
    int64_t deadline_ns;
    uint64_t turn; /* when it was closed, among the others */
    struct swap_rank {
        uint32_t peer, bytes;
        uint64_t instance;
        uint8_t data[SWAP_BYTES_MAX];
    } from[RANKS_MAX];
};

struct swap_past {
    uint64_t meeting; /* 0: none */
    uint32_t number;  /* the last round of it that was closed, and whose room was wanted */
};

struct swaps {
    uint64_t turns;
    bool closed;   /* one in this step: no more, or there would be no room for the actions */
    uint32_t open; /* rounds that are; without one no event walks over all of them */
    struct swap_round rounds[ROUNDS];
    uint64_t pasts_count; /* ever; the newest are kept */
    struct swap_past pasts[PASTS];
};

struct swaps *swaps_new(void)
{
    return calloc(1, sizeof(struct swaps));
}

static void become(struct swaps *swaps, struct swap_round *round, enum round_state state)
{
    swaps->open -= round->state == ROUND_OPEN;
    swaps->open += state == ROUND_OPEN;
    round->state = state;
}

static struct message_swapped *answer(struct order *order, uint32_t peer, gradweir_status status,
                                      const struct swap_round *round, uint64_t instance)
{
    struct message_swapped *swapped = &order_send(order, peer, MESSAGE_SWAPPED)->swapped;
    swapped->status = status;
    swapped->meeting = round ? round->meeting : 0;
    swapped->round = round ? round->number : 0;
    swapped->instance = instance;
    swapped->asked = round ? round->asked : 0;
    swapped->here = round ? round->here : 0;
    return swapped;
}

static void tell(struct order *order, const struct swap_round *round, uint32_t rank)
{
    const struct swap_rank *to = &round->from[rank];
    for (uint32_t r = 0; r < round->ranks; r++) {
        if (!(round->here >> r & 1))
            continue;
        struct message_swapped *swapped = answer(order, to->peer, GRADWEIR_OK, round, to->instance);
        swapped->rank = r;
        swapped->bytes = round->from[r].bytes;
        memcpy(swapped->data, round->from[r].data, round->from[r].bytes);
    }
}

static void close_round(struct order *order, struct swap_round *round)
{
    become(order->swaps, round, ROUND_CLOSED);
    round->turn = ++order->swaps->turns;
    if (round->known)
        round->asked &= round->here;
    for (uint32_t r = 0; r < round->ranks; r++)
        if (round->here >> r & 1)
            tell(order, round, r);
    order->swaps->closed = true;
}

/* They do not agree on how many they are: all hear it at once. */
static void refuse_all(struct order *order, struct swap_round *round)
{
    for (uint32_t r = 0; r < round->ranks; r++)
        if (round->here >> r & 1)
            answer(order, round->from[r].peer, GRADWEIR_ERR_MISMATCH, round,
                   round->from[r].instance);
    become(order->swaps, round, ROUND_FREE);
}

static bool makes_sense(const struct message_swap *swap)
{
    const uint32_t all = (UINT32_C(1) << swap->ranks) - 1;
    return memchr(swap->identity, 0, sizeof swap->identity) && swap->identity[0] != 0 &&
           swap->ranks >= 1 && swap->ranks <= RANKS_MAX && swap->rank < swap->ranks &&
           swap->bytes <= SWAP_BYTES_MAX && (swap->asked & ~all) == 0 &&
           (swap->meeting == 0) == (swap->round == 0) &&
           (swap->asked == 0 ? swap->meeting == 0 : (swap->asked >> swap->rank & 1) == 1) &&
           swap->patience_ms <= SWAP_PATIENCE_MS_MAX;
}

static bool is_of(const struct swap_round *round, const struct message_swap *swap)
{
    if (round->state == ROUND_FREE || round->number != swap->round ||
        strcmp(round->identity, swap->identity) != 0)
        return false;
    if (swap->meeting != 0)
        return round->meeting == swap->meeting;
    return round->state == ROUND_OPEN ||
           ((round->here >> swap->rank & 1) && round->from[swap->rank].instance == swap->instance);
}

static struct swap_round *find(struct swaps *swaps, const struct message_swap *swap)
{
    for (uint32_t i = 0; i < ROUNDS; i++)
        if (is_of(&swaps->rounds[i], swap))
            return &swaps->rounds[i];
    return NULL;
}

/* A free one, or the one that was closed longest ago; NULL when all wait, or too many of this
 * worker. */
static struct swap_round *room(struct swaps *swaps, const char *identity)
{
    struct swap_round *best = NULL;
    uint32_t own = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct swap_round *round = &swaps->rounds[i];
        own += round->state == ROUND_OPEN && strcmp(round->identity, identity) == 0;
        if (round->state == ROUND_OPEN)
            continue;
        if (!best || (best->state == ROUND_CLOSED &&
                      (round->state == ROUND_FREE || round->turn < best->turn)))
            best = round;
    }
    return own < ROUNDS_OF_ONE ? best : NULL;
}

static struct swap_past *past_of(struct swaps *swaps, uint64_t meeting)
{
    for (uint32_t i = 0; i < PASTS; i++)
        if (swaps->pasts[i].meeting == meeting)
            return &swaps->pasts[i];
    return NULL;
}

static void forget(struct swaps *swaps, const struct swap_round *round)
{
    struct swap_past *past = past_of(swaps, round->meeting);
    if (!past) {
        past = &swaps->pasts[swaps->pasts_count++ % PASTS];
        *past = (struct swap_past){.meeting = round->meeting};
    }
    if (past->number < round->number)
        past->number = round->number;
}

static bool is_past(struct swaps *swaps, const struct message_swap *swap)
{
    const struct swap_past *past = swap->meeting != 0 ? past_of(swaps, swap->meeting) : NULL;
    return past && swap->round <= past->number;
}

static struct swap_round *open_round(struct order *order, const struct message_swap *swap)
{
    struct swap_round *round = room(order->swaps, swap->identity);
    if (!round)
        return NULL;
    if (round->state == ROUND_CLOSED)
        forget(order->swaps, round);
    become(order->swaps, round, ROUND_OPEN);
    memcpy(round->identity, swap->identity, sizeof round->identity);
    round->number = swap->round;
    round->meeting = swap->meeting;
    while (round->meeting == 0)
        round->meeting = random_next(&order->random);
    round->ranks = swap->ranks;
    round->asked = swap->asked ? swap->asked : (UINT32_C(1) << swap->ranks) - 1;
    round->here = 0;
    round->known = false;
    round->deadline_ns = order_later(order->now_ns, (int64_t)swap->patience_ms * 1000000);
    return round;
}

/* Ranks of a worker that is running wait in a meeting: it hears of them. */
static void call(struct order *order, const struct swap_round *round)
{
    for (uint32_t i = 0; i < order->ledger.workers_count; i++) {
        const struct order_worker *worker = &order->workers[i];
        if (!roster_live(order, i) ||
            strcmp(order->ledger.workers[i].identity, round->identity) != 0)
            continue;
        if (worker->ranks == 0 && worker->peer != 0)
            order_send(order, worker->peer, MESSAGE_CALLED)->called.waiting = round->here;
        for (uint32_t r = 0; r < worker->ranks; r++)
            if (worker->rank_peers[r])
                order_send(order, worker->rank_peers[r], MESSAGE_CALLED)->called.waiting =
                    round->here;
    }
}

static void come(struct order *order, struct swap_round *round, uint32_t peer,
                 const struct message_swap *swap)
{
    struct swap_rank *from = &round->from[swap->rank];
    from->peer = peer;
    from->instance = swap->instance;
    from->bytes = swap->bytes;
    memcpy(from->data, swap->data, swap->bytes);
    round->here |= UINT32_C(1) << swap->rank;
    if (round->number == 0 && swap->asked) {
        round->known = true;
        round->asked = swap->asked;
    }
    if (round->number == 0 && !round->known)
        call(order, round);
    if ((round->here & round->asked) == round->asked && !order->swaps->closed)
        close_round(order, round);
}

void swaps_came(struct order *order, uint32_t peer, const struct message_swap *swap)
{
    order->inert = true;
    if (!makes_sense(swap)) {
        order->figures.foreign++;
        return;
    }
    struct swap_round *round = find(order->swaps, swap);
    if (!round && is_past(order->swaps, swap)) {
        struct message_swapped *late = answer(order, peer, GRADWEIR_ERR_LOST, NULL, swap->instance);
        late->meeting = swap->meeting;
        late->round = swap->round;
        return;
    }
    if (!round && !(round = open_round(order, swap))) {
        answer(order, peer, GRADWEIR_ERR_FULL, NULL, swap->instance);
        return;
    }
    const struct swap_rank *from = &round->from[swap->rank];
    const bool came = swap->ranks == round->ranks && (round->here >> swap->rank & 1);
    /* What it said in an earlier try may be here yet, over the same connection. */
    const bool same = came && (from->instance == swap->instance ||
                               (from->peer == peer && round->state == ROUND_OPEN));
    if (round->state == ROUND_CLOSED && order->plants.swap_reopened) {
        come(order, round, peer, swap);
    } else if (round->state == ROUND_CLOSED && same) {
        round->from[swap->rank].peer = peer;
        tell(order, round, swap->rank);
    } else if (round->state == ROUND_CLOSED) {
        answer(order, peer, GRADWEIR_ERR_LOST, round, swap->instance);
    } else if (swap->ranks != round->ranks) {
        answer(order, peer, GRADWEIR_ERR_MISMATCH, round, swap->instance);
        refuse_all(order, round);
    } else if (came && !same) {
        answer(order, peer, GRADWEIR_ERR_INVALID, round, swap->instance);
    } else {
        come(order, round, peer, swap);
    }
}

/* Who waited and is gone does not count; it may come again. */
void swaps_lost(struct order *order, uint32_t peer)
{
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct swap_round *round = &order->swaps->rounds[i];
        for (uint32_t r = 0; r < round->ranks && round->state == ROUND_OPEN; r++)
            if ((round->here >> r & 1) && round->from[r].peer == peer)
                round->here &= ~(UINT32_C(1) << r);
        if (round->state == ROUND_OPEN && round->here == 0)
            become(order->swaps, round, ROUND_FREE);
    }
}

void swaps_tick(struct order *order)
{
    struct swaps *swaps = order->swaps;
    for (uint32_t i = 0; i < ROUNDS && swaps->open > 0 && !swaps->closed; i++) {
        struct swap_round *round = &swaps->rounds[i];
        if (round->state == ROUND_OPEN &&
            (order->now_ns >= round->deadline_ns || (round->here & round->asked) == round->asked))
            close_round(order, round);
    }
    swaps->closed = false;
}

int64_t swaps_next(const struct order *order)
{
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; i < ROUNDS && order->swaps->open > 0; i++) {
        const struct swap_round *round = &order->swaps->rounds[i];
        if (round->state != ROUND_OPEN)
            continue;
        const bool whole = (round->here & round->asked) == round->asked;
        const int64_t end_ns = whole ? order->now_ns : round->deadline_ns;
        next = end_ns < next ? end_ns : next;
    }
    return next;
}

bool swaps_waiting(const struct order *order, uint32_t i, const char **identity, uint32_t *missing,
                   uint32_t *ranks)
{
    for (uint32_t k = 0; k < ROUNDS; k++) {
        const struct swap_round *round = &order->swaps->rounds[k];
        if (round->state != ROUND_OPEN || round->number != 0 || i-- > 0)
            continue;
        *identity = round->identity;
        *missing = round->asked & ~round->here;
        *ranks = round->ranks;
        return true;
    }
    return false;
}
