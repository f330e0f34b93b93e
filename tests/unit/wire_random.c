#include "tests/unit/wire_random.h"

#include "common/wire.h"
#include "common/wire_fields.h"

#include <math.h>
#include <string.h>

size_t wire_message_kinds(uint32_t kinds[WIRE_KINDS_MAX])
{
    size_t count = 0;
#define MESSAGE_ENTRY(name, number) kinds[count++] = number;
    MESSAGE_MAP(MESSAGE_ENTRY)
#undef MESSAGE_ENTRY
    return count;
}

size_t wire_record_kinds(uint32_t kinds[WIRE_KINDS_MAX])
{
    size_t count = 0;
#define RECORD_ENTRY(name, number) kinds[count++] = number;
    RECORD_MAP(RECORD_ENTRY)
#undef RECORD_ENTRY
    return count;
}

/* Numbers of every width, and the borders often. */
static uint64_t number(struct random *random, uint64_t low, uint64_t high)
{
    const uint64_t span = high - low;
    const uint64_t value = random_next(random) >> random_below(random, 64);
    switch (random_below(random, 8)) {
    case 0: return low;
    case 1: return high;
    default: return span == UINT64_MAX ? value : low + value % (span + 1);
    }
}

static void fill(struct random *random, void *place, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)place)[i] = (uint8_t)random_next(random);
}

static void fill_text(struct random *random, char *place, size_t room)
{
    const size_t length = random_below(random, room);
    for (size_t i = 0; i < length; i++)
        place[i] = (char)(1 + random_below(random, 255));
}

static void fill_counted(struct random *random, const struct field *field, bool small, char *base)
{
    static uint8_t data[PAGE_BYTES_MAX];
    const uint64_t high = small && field->max > 4 ? 4 : field->max;
    uint32_t count;
    memcpy(&count, base + field->count, sizeof count);
    if (count == 0) /* two blobs may share a count */
        count = (uint32_t)number(random, 0, high);
    memcpy(base + field->count, &count, sizeof count);
    const uint8_t *pointer = data;
    if (field->type == FIELD_DATA)
        memcpy(base + field->offset, &pointer, sizeof pointer);
    void *place = field->type == FIELD_DATA ? data : (void *)(base + field->offset);
    fill(random, place, (size_t)count * field->size);
}

static void fill_field(struct random *random, const struct field *field, bool small, char *base)
{
    const uint32_t narrow = (uint32_t)number(random, field->min, field->max);
    const uint64_t wide = number(random, field->min, field->max);
    switch (field->type) {
    case FIELD_U32: memcpy(base + field->offset, &narrow, sizeof narrow); break;
    case FIELD_U64: memcpy(base + field->offset, &wide, sizeof wide); break;
    case FIELD_I32: fill(random, base + field->offset, 4); break;
    case FIELD_F32: {
        float single;
        do
            fill(random, &single, sizeof single);
        while (isnan(single));
        memcpy(base + field->offset, &single, sizeof single);
        break;
    }
    case FIELD_F64: fill(random, base + field->offset, 8); break;
    case FIELD_TEXT:
        fill_text(random, base + field->offset, small && field->size > 9 ? 9 : field->size);
        break;
    case FIELD_BYTES: fill(random, base + field->offset, field->size); break;
    case FIELD_BLOB:
    case FIELD_DATA: fill_counted(random, field, small, base); break;
    }
}

static void fill_fields(struct random *random, struct field_table table, bool small, void *base)
{
    for (uint32_t i = 0; i < table.count; i++)
        fill_field(random, &table.fields[i], small, base);
}

void wire_random_record(struct random *random, uint32_t kind, bool small, struct record *out)
{
    memset(out, 0, sizeof *out);
    out->kind = kind;
    out->epoch = (uint32_t)number(random, 0, UINT32_MAX);
    out->timeline = (uint32_t)number(random, 0, UINT32_MAX);
    out->index = number(random, 0, UINT64_MAX);
    out->previous = number(random, 0, UINT64_MAX);
    fill_fields(random, record_fields(kind), small, out);
}

void wire_random_message(struct random *random, uint32_t kind, bool small, struct message *out)
{
    memset(out, 0, sizeof *out);
    out->kind = kind;
    out->epoch = (uint32_t)number(random, 0, UINT32_MAX);
    out->timeline = (uint32_t)number(random, 0, UINT32_MAX);
    fill_fields(random, message_fields(kind), small, out);
    for (uint32_t i = 0; kind == MESSAGE_JOINED && i < out->joined.members_count; i++)
        out->joined.members[i].address[ADDRESS_MAX - 1] = 0;
    if (kind == MESSAGE_RECORD) {
        uint32_t kinds[WIRE_KINDS_MAX];
        const size_t count = wire_record_kinds(kinds);
        wire_random_record(random, kinds[random_below(random, count)], small, &out->record);
    }
}

static bool same_field(const struct field *field, const char *a, const char *b)
{
    const char *left = a + field->offset, *right = b + field->offset;
    if (field->type != FIELD_BLOB && field->type != FIELD_DATA)
        return memcmp(left, right, field->size) == 0;
    uint32_t count, other;
    memcpy(&count, a + field->count, sizeof count);
    memcpy(&other, b + field->count, sizeof other);
    if (field->type == FIELD_DATA) {
        memcpy(&left, a + field->offset, sizeof left);
        memcpy(&right, b + field->offset, sizeof right);
    }
    return count == other && memcmp(left, right, (size_t)count * field->size) == 0;
}

static bool same_fields(struct field_table table, const void *a, const void *b)
{
    for (uint32_t i = 0; i < table.count; i++)
        if (!same_field(&table.fields[i], a, b))
            return false;
    return true;
}

bool wire_record_same(const struct record *a, const struct record *b)
{
    return a->kind == b->kind && a->epoch == b->epoch && a->timeline == b->timeline &&
           a->index == b->index && a->previous == b->previous &&
           same_fields(record_fields(a->kind), a, b);
}

bool wire_message_same(const struct message *a, const struct message *b)
{
    return a->kind == b->kind && a->epoch == b->epoch && a->timeline == b->timeline &&
           same_fields(message_fields(a->kind), a, b) &&
           (a->kind != MESSAGE_RECORD || wire_record_same(&a->record, &b->record));
}
