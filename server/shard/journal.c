/* An event happens whole or not at all. Before a piece of the arena's control memory changes, its
 * old bytes go to the journal; when the event is done the journal is emptied by one store. Who goes
 * on after a kill puts the old bytes back, newest first.
 *
 *     | old bytes | offset, length | old bytes | offset, length |   used
 *
 * A killed thread's stores are all seen, in the order of its program, so only the compiler has to
 * be told that bytes are saved before `used` grows, and that `used` grows before they change. */
#include "server/shard/shard_internal.h"

#include <stdatomic.h>
#include <string.h>

struct tail {
    uint64_t offset, length;
};

static void in_order(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

static uint64_t padded(uint64_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

static char *journal_at(struct shard *shard, uint64_t used)
{
    return (char *)at_offset(shard, shard->at.journal) + used;
}

/* Control memory, but for what is fixed once the arena is laid out and what has rules of its own
 * (head, options, offsets, the journal itself, the word of tiles): undoing must not move the ground
 * it stands on. */
static bool may_be_kept(const struct shard *shard, const struct tail *tail)
{
    const uint64_t end = tail->offset + tail->length;
    return tail->length <= shard->at.journal && tail->offset >= offsetof(struct shard, ledger) &&
           tail->offset <= shard->at.journal && end <= shard->at.journal &&
           (end <= offsetof(struct shard, at) || tail->offset >= offsetof(struct shard, slots));
}

void journal_keep(struct shard *shard, const void *memory, uint64_t bytes)
{
    if (!shard->options.warm)
        return;
    const struct tail tail = {.offset = (uint64_t)((const char *)memory - (const char *)shard),
                              .length = bytes};
    const uint64_t used = shard->journal.used, end = used + padded(bytes) + sizeof tail;
    ASSERT(may_be_kept(shard, &tail) && end <= shard->journal.bytes);
    memcpy(journal_at(shard, used), memory, bytes);
    memcpy(journal_at(shard, end - sizeof tail), &tail, sizeof tail);
    in_order();
    shard->journal.used = end;
    in_order();
}

void journal_commit(struct shard *shard)
{
    if (shard->audit)
        shard->audit(shard);
    in_order();
    shard->journal.used = 0;
    in_order();
}

bool journal_sound(struct shard *shard)
{
    uint64_t used = shard->journal.used;
    if (used > shard->journal.bytes || used % 8)
        return false;
    while (used) {
        struct tail tail;
        if (used < sizeof tail)
            return false;
        memcpy(&tail, journal_at(shard, used - sizeof tail), sizeof tail);
        used -= sizeof tail;
        if (tail.length > used || padded(tail.length) > used || !may_be_kept(shard, &tail))
            return false;
        used -= padded(tail.length);
    }
    return true;
}

/* Killed in the middle of this: it begins again where `used` says, and putting bytes back twice
 * changes nothing. The journal's own place is never among them. */
void journal_undo(struct shard *shard)
{
    while (shard->journal.used) {
        struct tail tail;
        const uint64_t end = shard->journal.used - sizeof tail;
        memcpy(&tail, journal_at(shard, end), sizeof tail);
        const uint64_t begin = end - padded(tail.length);
        memcpy(at_offset(shard, tail.offset), journal_at(shard, begin), tail.length);
        in_order();
        shard->journal.used = begin;
        in_order();
    }
}
