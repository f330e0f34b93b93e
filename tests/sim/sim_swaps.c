/* Some of the workers are also ranks of one group, "swap", and meet: in a third of all seeds, by
 * chance of their own, beside everything else. Of what they hear must hold: all who hear of one
 * round of one coordinator hear of the same ranks and the same bytes; a rank's bytes are those that
 * it gave for that round; whoever has an answer is in it; in the calm everybody gets on. */
#include "tests/sim/sim_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SWAPPERS = 4, ROUNDS = 4096, SAYINGS = 1 << 14, WANTED = 2, PATIENCE_MS = 20 };

/* One rank's bytes: who gives them for what. */
struct saying {
    uint64_t instance, meeting;
    uint32_t round, rank;
};

struct sim_swaps {
    uint32_t ranks; /* 0: there is none in this seed */
    struct random random;
    uint64_t instances;
    struct swapper {
        bool waits;
        struct message say;
        int64_t begun_ns;
        uint64_t meeting;
        uint32_t round, here, got, calm; /* calm: answers since it began */
    } of[SWAPPERS];
    struct heard_round {
        uint64_t from, meeting;
        uint32_t round, here, got;
        uint64_t instances[SWAPPERS];
    } rounds[ROUNDS];
    uint32_t rounds_n;
    struct saying said[SAYINGS]; /* by instance, modulo */
};

bool swaps_room(struct sim *sim)
{
    return (sim->swaps = calloc(1, sizeof *sim->swaps)) != NULL;
}

void swaps_reset(struct sim *sim)
{
    struct sim_swaps *swaps = sim->swaps;
    memset(swaps, 0, sizeof *swaps);
    random_split(&swaps->random, sim->seed, "swaps", 0);
    if (chance(&swaps->random, 1.0 / 3))
        swaps->ranks = 2 + (uint32_t)random_below(&swaps->random, SWAPPERS - 1);
}

static bool takes_part(const struct sim *sim, uint32_t worker)
{
    return worker < sim->swaps->ranks && sim->swaps->ranks <= sim->settings.workers;
}

static void turn_later(struct sim *sim, uint32_t worker)
{
    const bool late = !sim->swaps->of[worker].waits && chance(&sim->swaps->random, 0.15);
    const double most = late ? 3 * PATIENCE_MS : 6; /* the others go on without it */
    const double ns = between(&sim->swaps->random, 0.2, most) * (double)MS;
    event_add(sim, (struct sim_event){.at_ns = sim->now_ns + (int64_t)ns,
                                      .kind = SIM_SWAP,
                                      .actor = actor_worker(worker),
                                      .process = sim->actors[actor_worker(worker)].process});
}

void swaps_start(struct sim *sim, uint32_t worker)
{
    if (!takes_part(sim, worker))
        return;
    sim->swaps->of[worker] = (struct swapper){.calm = sim->swaps->of[worker].calm};
    turn_later(sim, worker);
}

/* A meeting, or the next round of the one that it is in. */
static void begin(struct sim *sim, uint32_t worker)
{
    struct sim_swaps *swaps = sim->swaps;
    struct swapper *own = &swaps->of[worker];
    const bool anew = own->meeting == 0 || chance(&swaps->random, 0.2);
    const bool knows = own->meeting != 0 && chance(&swaps->random, 0.5);
    struct message_swap *say = &own->say.swap;
    own->say.kind = MESSAGE_SWAP;
    own->say.epoch = own->say.timeline = 1;
    *say = (struct message_swap){.identity = "swap",
                                 .rank = worker,
                                 .ranks = swaps->ranks,
                                 .instance = ++swaps->instances,
                                 .patience_ms = PATIENCE_MS,
                                 .bytes = sizeof(uint64_t)};
    say->meeting = anew ? 0 : own->meeting;
    say->round = anew ? 0 : own->round + 1;
    say->asked = !anew || knows ? own->here : 0;
    memcpy(say->data, &say->instance, sizeof say->instance);
    swaps->said[say->instance % SAYINGS] = (struct saying){
        .instance = say->instance, .meeting = say->meeting, .round = say->round, .rank = worker};
    own->waits = true;
    own->begun_ns = sim->now_ns;
    own->got = 0;
}

void swaps_turn(struct sim *sim, uint32_t worker)
{
    struct swapper *own = &sim->swaps->of[worker];
    if (sim->quiet || !sim->actors[actor_worker(worker)].alive)
        return;
    if (own->waits && sim->now_ns - own->begun_ns > 3 * PATIENCE_MS * MS)
        *own = (struct swapper){.calm = own->calm};
    if (!own->waits && chance(&sim->swaps->random, 0.85))
        begin(sim, worker);
    if (own->waits)
        control_to_coordinator(sim, actor_worker(worker), &own->say);
    turn_later(sim, worker);
}

/* What is known of the round from others, or a new place for it. */
static struct heard_round *find_round(struct sim *sim, const struct message_swapped *swapped)
{
    struct sim_swaps *swaps = sim->swaps;
    for (uint32_t i = 0; i < swaps->rounds_n; i++) {
        struct heard_round *round = &swaps->rounds[i];
        if (round->from == sim->heard_from && round->meeting == swapped->meeting &&
            round->round == swapped->round)
            return round;
    }
    if (swaps->rounds_n == ROUNDS)
        return NULL;
    struct heard_round *round = &swaps->rounds[swaps->rounds_n++];
    *round = (struct heard_round){.from = sim->heard_from,
                                  .meeting = swapped->meeting,
                                  .round = swapped->round,
                                  .here = swapped->here};
    sim->counts.swap_rounds++;
    sim->counts.swap_partial += swapped->here != swapped->asked;
    return round;
}

/* Of these ranks, and given by that rank for that round. */
static uint64_t check_bytes(struct sim *sim, uint32_t worker, const struct message_swapped *swapped)
{
    uint64_t instance = 0;
    if (!(swapped->here >> worker & 1) || swapped->here >> sim->swaps->ranks ||
        !(swapped->here >> swapped->rank & 1) || swapped->bytes != sizeof instance)
        sim_fail(sim, "rank %u hears of a round that makes no sense", worker);
    memcpy(&instance, swapped->data, sizeof instance);
    const struct saying *said = &sim->swaps->said[instance % SAYINGS];
    if (said->instance != instance || said->rank != swapped->rank ||
        said->round != swapped->round || (said->meeting != 0 && said->meeting != swapped->meeting))
        sim_fail(sim, "rank %u hears bytes that rank %u has not given for that round", worker,
                 swapped->rank);
    return instance;
}

static void compare(struct sim *sim, uint32_t worker, const struct message_swapped *swapped)
{
    const uint64_t instance = check_bytes(sim, worker, swapped);
    struct heard_round *round = find_round(sim, swapped);
    if (!round)
        return;
    if (round->here != swapped->here)
        sim_fail(sim, "rank %u hears that other ranks came to a round than others have", worker);
    if ((round->got >> swapped->rank & 1) && round->instances[swapped->rank] != instance)
        sim_fail(sim, "rank %u hears other bytes of rank %u than others have", worker,
                 swapped->rank);
    round->instances[swapped->rank] = instance;
    round->got |= UINT32_C(1) << swapped->rank;
}

void swaps_heard(struct sim *sim, uint32_t worker, const struct message_swapped *swapped)
{
    if (!takes_part(sim, worker))
        sim_fail(sim, "worker %u hears of a round, and is no rank", worker);
    struct swapper *own = &sim->swaps->of[worker];
    if (!own->waits || swapped->instance != own->say.swap.instance)
        return;
    if (swapped->status != GRADWEIR_OK) {
        sim->counts.swap_refused++;
        *own = (struct swapper){.calm = own->calm};
        return;
    }
    compare(sim, worker, swapped);
    own->got |= UINT32_C(1) << swapped->rank;
    if (own->got != swapped->here)
        return;
    own->waits = false;
    own->meeting = swapped->meeting;
    own->round = swapped->round;
    own->here = swapped->here;
    own->calm += sim->calm;
}

bool swaps_get_on(struct sim *sim, char *text, size_t size)
{
    for (uint32_t i = 0; i < sim->swaps->ranks; i++)
        if (takes_part(sim, i) && worker_lives(sim, i) && sim->swaps->of[i].calm < WANTED) {
            snprintf(text, size, "rank %u has %u answers of rounds", i, sim->swaps->of[i].calm);
            return false;
        }
    return true;
}
