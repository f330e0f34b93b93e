/* Messages as lines for people: who says what to whom, with the numbers that matter. */
#include "tests/sim/sim_calls.h"

#include <stdio.h>

typedef unsigned long long ull;

const char *story_actor(const struct sim *sim, uint32_t actor)
{
    static char texts[4][32];
    static uint32_t next;
    char *text = texts[next++ % 4];
    switch (actor_role(actor)) {
    case COORDINATOR: snprintf(text, 32, "coordinator %u", sim->coordinators[actor].number); break;
    case SHARD: snprintf(text, 32, "shard %u", shard_of(actor)); break;
    case WORKER:
        snprintf(text, 32, "worker %u(%.8s)", worker_of(actor),
                 sim->workers[worker_of(actor)].identity);
    }
    return text;
}

static int tell_name(char *text, size_t size, const struct name *name)
{
    return snprintf(text, size, " w%u.%llu#%llu", name->worker, (ull)name->incarnation,
                    (ull)name->sequence);
}

static int tell_slot(char *text, size_t size, uint32_t slot, uint64_t generation)
{
    return snprintf(text, size, " slot %u g%llu:%llu", slot, (ull)(generation >> 40),
                    (ull)(generation & 0xffffffffff));
}

static void tell_record(char *text, size_t size, const struct record *record)
{
    int n = snprintf(text, size, " %llu %s", (ull)record->index, record_name(record->kind));
    char *rest = text + n;
    size -= (size_t)n;
    switch (record->kind) {
    case RECORD_ADMIT:
        n = tell_name(rest, size, &record->admit.name);
        tell_slot(rest + n, size - (size_t)n, record->admit.slot, record->admit.generation);
        break;
    case RECORD_REFUSE:
        n = tell_name(rest, size, &record->refuse.name);
        snprintf(rest + n, size - (size_t)n, " %s", verdict_name(record->refuse.verdict));
        break;
    case RECORD_STEP: snprintf(rest, size, " version %llu", (ull)record->step.version); break;
    case RECORD_JOIN:
        snprintf(rest, size, " w%u.%llu %.20s", record->join.worker, (ull)record->join.incarnation,
                 record->join.identity);
        break;
    case RECORD_LEAVE:
        snprintf(rest, size, " w%u.%llu", record->leave.worker, (ull)record->leave.incarnation);
        break;
    default: break;
    }
}

static void tell_receipt(char *text, size_t size, const struct message_receipt *receipt)
{
    const int n = tell_name(text, size, &receipt->name);
    snprintf(text + n, size - (size_t)n, " %s in record %llu", verdict_name(receipt->verdict),
             (ull)receipt->index);
}

/* The part behind the kind's name. */
static void tell_content(char *text, size_t size, const struct message *message)
{
    int n = 0;
    text[0] = 0;
    switch (message->kind) {
    case MESSAGE_ASK:
    case MESSAGE_BYE: tell_name(text, size, &message->ask.name); break;
    case MESSAGE_PLACE:
    case MESSAGE_DESCRIBE: /* name, slot, generation stand first in both */
        n = tell_name(text, size, &message->place.name);
        tell_slot(text + n, size - (size_t)n, message->place.slot, message->place.generation);
        break;
    case MESSAGE_RECEIPT: tell_receipt(text, size, &message->receipt); break;
    case MESSAGE_RECORD: tell_record(text, size, &message->record); break;
    case MESSAGE_LOGGED: snprintf(text, size, " %llu", (ull)message->logged.index); break;
    case MESSAGE_LANDED:
        n = tell_name(text, size, &message->landed.name);
        tell_slot(text + n, size - (size_t)n, message->landed.slot, message->landed.generation);
        break;
    case MESSAGE_CLOSE:
        n = tell_slot(text, size, message->close.slot, message->close.generation);
        snprintf(text + n, size - (size_t)n, " after %llu", (ull)message->close.after);
        break;
    case MESSAGE_FREED:
        tell_slot(text, size, message->freed.slot, message->freed.generation);
        break;
    case MESSAGE_STEPPED:
    case MESSAGE_SUMS: /* the version stands first in both */
    case MESSAGE_WHOLE: snprintf(text, size, " %llu", (ull)message->whole.version); break;
    case MESSAGE_JOINED:
        snprintf(text, size, " w%u.%llu", message->joined.worker, (ull)message->joined.incarnation);
        break;
    case MESSAGE_DENIED: snprintf(text, size, " %.80s", message->denied.text); break;
    default: break;
    }
}

static void tell(struct sim *sim, uint32_t first, const char *verb, uint32_t second,
                 const struct message *message)
{
    char text[160];
    tell_content(text, sizeof text, message);
    sim_tell(sim, "%s %s %s: %s%s (epoch %u)", story_actor(sim, first), verb,
             story_actor(sim, second), message_name(message->kind), text, message->epoch);
}

void story_sent(struct sim *sim, uint32_t from, uint32_t to, const struct message *message)
{
    if (sim->story)
        tell(sim, from, "tells", to, message);
}

void story_heard(struct sim *sim, uint32_t by, uint32_t from, const struct message *message)
{
    if (sim->story)
        tell(sim, by, "hears", from, message);
}

void story_head(struct sim *sim, const struct sim_connection *connection,
                const struct sim_body *body, bool heard)
{
    static const char *const words[] = {"?",     "HELLO",    "WELCOME",    "DENY",
                                        "CHUNK", "PULL",     "PARAMETERS", "GONE",
                                        "PART",  "DESCRIBE", "RECEIPT"};
    if (!sim->story)
        return;
    const uint32_t ends[] = {actor_worker(connection->worker), actor_shard(connection->shard)};
    const char *from = story_actor(sim, ends[body->from]);
    const char *to = story_actor(sim, ends[1 - body->from]);
    const char *what = words[body->head.kind <= HEAD_RECEIPT ? body->head.kind : 0];
    if (heard)
        sim_tell(sim, "%s hears %s: %s over data connection %u", to, from, what,
                 connection->number);
    else
        sim_tell(sim, "%s tells %s: %s, %llu bytes, over data connection %u", from, to, what,
                 (ull)body->length, connection->number);
}
