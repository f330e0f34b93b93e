/* Which bytes of a ledger a record can change, so that they can be saved before. */
#include "common/ledger.h"

enum { RING = 2 * LAW_WINDOW_MAX };

static struct ledger_range entries(uint64_t first, uint64_t count)
{
    return (struct ledger_range){.offset = offsetof(struct ledger, law.ring) +
                                           first * sizeof(struct law_entry),
                                 .bytes = count * sizeof(struct law_entry)};
}

/* Ring places [first, next), which may lie around its end. */
static uint32_t ring(uint64_t first, uint64_t next, struct ledger_range *ranges)
{
    const uint64_t begin = first % RING, count = next - first;
    if (count == 0)
        return 0;
    if (begin + count <= RING) {
        ranges[0] = entries(begin, count);
        return 1;
    }
    ranges[0] = entries(begin, RING - begin);
    ranges[1] = entries(0, begin + count - RING);
    return 2;
}

static struct ledger_range turns(const struct law *law)
{
    const uint64_t n =
        law->stacks.turns_n < LAW_WINDOW_MAX ? law->stacks.turns_n + 1u : (uint64_t)LAW_WINDOW_MAX;
    return (struct ledger_range){.offset = offsetof(struct ledger, law.turns),
                                 .bytes = n * sizeof(struct law_turn)};
}

static struct ledger_range worker(uint32_t number, uint64_t offset, uint64_t bytes)
{
    const uint64_t at = number < WORKERS_MAX ? number : 0; /* refused before anything changes */
    return (struct ledger_range){.offset = offsetof(struct ledger, workers) +
                                           at * sizeof(struct ledger_worker) + offset,
                                 .bytes = bytes};
}

/* A verdict: the counts, and one receipt. */
static uint32_t verdict(const struct name *name, struct ledger_range *ranges)
{
    ranges[0] = worker(name->worker, 0, offsetof(struct ledger_worker, receipts));
    ranges[1] = worker(name->worker,
                       offsetof(struct ledger_worker, receipts) +
                           name->sequence % LEDGER_RECEIPTS * sizeof(struct ledger_receipt),
                       sizeof(struct ledger_receipt));
    return 2;
}

uint32_t ledger_changes(const struct ledger *ledger, const struct record *record,
                        struct ledger_range ranges[LEDGER_CHANGES_MAX])
{
    const struct law *law = &ledger->law;
    uint32_t count = 1;
    ranges[0] = (struct ledger_range){.bytes = offsetof(struct ledger, law.ring)};
    switch (record->kind) {
    case RECORD_FIRST: count += verdict(&record->first.name, ranges + count); break;
    case RECORD_REFUSE: count += verdict(&record->refuse.name, ranges + count); break;
    case RECORD_ADMIT:
        count += verdict(&record->admit.name, ranges + count);
        count += ring(law->next, law->next + 1, ranges + count);
        break;
    case RECORD_STEP:
        count += ring(law->first, law->next, ranges + count);
        ranges[count++] = turns(law);
        break;
    case RECORD_JOIN:
        ranges[count++] = worker(record->join.worker, 0, sizeof(struct ledger_worker));
        break;
    case RECORD_LEAVE:
        ranges[count++] = worker(record->leave.worker, 0, sizeof(struct ledger_worker));
        break;
    case RECORD_MAP:
        ranges[count++] = (struct ledger_range){.offset = offsetof(struct ledger, law),
                                                .bytes = sizeof ledger->law};
        break;
    default: break;
    }
    return count;
}
