/* See record.h. */
#include "common/record.h"

#include <stddef.h>
#include <string.h>

size_t record_used(const struct record *record)
{
    const size_t head = offsetof(struct record, admit);
    switch (record->kind) {
    case RECORD_ADMIT: return head + sizeof record->admit;
    case RECORD_REFUSE: return head + sizeof record->refuse;
    case RECORD_STEP:
        if (record->step.stacks.turns_count > 0)
            return head + offsetof(struct record_step, turns) +
                   record->step.stacks.turns_count * sizeof record->step.turns[0];
        return head + offsetof(struct record_step, entries) +
               record->step.entries_count * sizeof record->step.entries[0];
    default: return sizeof *record;
    }
}

void record_copy(struct record *to, const struct record *from)
{
    memcpy(to, from, record_used(from));
}
