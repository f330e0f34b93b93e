/* Which slots and workers are in what condition, as sets of bits, so that no event walks over all
 * of them: with 1,000 workers and 64 shards a gradient is some 200 events. A set is derived from
 * its items and nothing else: whoever changes one says so (sets_slot, sets_worker), and order_sound
 * compares all of it with what is so. */
#include "server/coordinator/order_internal.h"

#include <string.h>

/* One bit; how much the count changes. */
static uint32_t put(uint64_t *bits, uint32_t i, bool value)
{
    const uint64_t bit = UINT64_C(1) << (i % 64);
    const bool before = bits[i / 64] & bit;
    if (before == value)
        return 0;
    bits[i / 64] ^= bit;
    return value ? 1 : UINT32_MAX;
}

static void put_slot(struct order_sets *sets, const struct order_slot *slot, uint32_t i)
{
    const bool placed = slot->state == SLOT_PLACED;
    sets->free_count += put(sets->free, i, slot->state == SLOT_FREE);
    sets->placed_count += put(sets->placed, i, placed);
    put(sets->ready, i, placed && slot->ready != 0);
}

static void put_worker(struct order_sets *sets, const struct order *order, uint32_t i)
{
    const struct order_worker *worker = &order->workers[i];
    const bool live = order->ledger.workers[i].state == WORKER_LIVE;
    sets->placeless_count += put(sets->placeless, i, roster_live(order, i) && worker->held == 0);
    sets->waiting_count += put(sets->waiting, i, places_waits(order, i));
    put(sets->lost, i, live && worker->peer == 0);
    put(sets->untold, i, live && worker->peer != 0 && !worker->told);
}

void sets_slot(struct order *order, uint32_t slot)
{
    put_slot(&order->sets, &order->slots[slot], slot);
}

void sets_worker(struct order *order, uint32_t worker)
{
    put_worker(&order->sets, order, worker);
}

static void fill(struct order_sets *sets, const struct order *order)
{
    memset(sets, 0, sizeof *sets);
    for (uint32_t i = 0; i < order->slots_count; i++)
        put_slot(sets, &order->slots[i], i);
    for (uint32_t i = 0; i < order->ledger.workers_count; i++)
        put_worker(sets, order, i);
}

void sets_all(struct order *order)
{
    fill(&order->sets, order);
}

bool order_sound(const struct order *order)
{
    struct order_sets sets;
    fill(&sets, order);
    return memcmp(&sets, &order->sets, sizeof sets) == 0;
}

uint32_t sets_next(const uint64_t *bits, uint32_t from, uint32_t count)
{
    for (uint32_t word = from / 64; word * 64 < count; word++) {
        uint64_t rest = bits[word];
        if (word == from / 64)
            rest &= UINT64_MAX << (from % 64);
        if (rest != 0) {
            const uint32_t found = word * 64 + (uint32_t)__builtin_ctzll(rest);
            return found < count ? found : count;
        }
    }
    return count;
}
