#include "tests/unit/shard_audit.h"

#include "server/shard/shard_internal.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { AUDITED_MAX = 4 };

static struct audited {
    struct shard *shard, *before, *after;
} audited[AUDITED_MAX];

/* NULL: not audited, or an arena that has moved. */
static struct audited *find(const struct shard *shard)
{
    for (int i = 0; i < AUDITED_MAX; i++)
        if (audited[i].shard == shard)
            return &audited[i];
    return NULL;
}

/* What a resume would go on with, without what is no part of it. */
static void settle(struct shard *copy)
{
    journal_undo(copy);
    shard_forget(copy);
    copy->keeps_count = 0; /* set back when an event begins, by itself */
    memset(copy->keeps, 0, sizeof copy->keeps);
    copy->tile_word = 0; /* a journal of its own: tiles.c */
    copy->revived = false;
    memset(&copy->plant, 0, sizeof copy->plant); /* tests set it between events */
}

static void tell_difference(const char *before, const char *after)
{
    uint64_t i = 0;
    while (before[i] == after[i])
        i++;
    cr_assert_fail("byte %llu of the control memory changed without having been kept",
                   (unsigned long long)i);
}

static void audit(struct shard *shard)
{
    const struct audited *one = find(shard);
    if (!one)
        return;
    const uint64_t bytes = shard->at.journal + shard->journal.bytes;
    memcpy(one->after, shard, bytes);
    settle(one->after);
    if (memcmp(one->before, one->after, shard->at.journal) != 0)
        tell_difference((const char *)one->before, (const char *)one->after);
    memcpy(one->before, shard, bytes);
    one->before->journal.used = 0;
    settle(one->before);
}

void shard_audit_begin(struct shard *shard)
{
    const uint64_t bytes = shard->at.journal + shard->journal.bytes;
    struct audited *one = find(NULL);
    cr_assert_not_null(one, "too many shards are audited");
    *one = (struct audited){.shard = shard,
                            .before = aligned_alloc(64, (bytes + 63) / 64 * 64),
                            .after = aligned_alloc(64, (bytes + 63) / 64 * 64)};
    cr_assert(one->before && one->after);
    memcpy(one->before, shard, bytes);
    settle(one->before);
    shard->audit = audit;
}

void shard_audit_end(struct shard *shard)
{
    struct audited *one = find(shard);
    if (!one)
        return;
    shard->audit = NULL;
    free(one->before);
    free(one->after);
    *one = (struct audited){.shard = NULL};
}
