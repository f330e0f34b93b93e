/* Parameter slots and the PULLs that read them. A slot is pinned while a body leaves from it. */
#include "server/shard/shard_internal.h"

#include <string.h>

uint32_t parameters_find(const struct shard *shard, uint64_t version)
{
    for (uint32_t i = 0; i < shard->options.member.parameter_slots; i++) {
        const struct parameter_slot *slot = &shard->parameters[i];
        if (slot->used && !slot->writing && slot->version == version)
            return i;
    }
    return UINT32_MAX;
}

/* Its version is wanted, whoever reads it. */
static bool wanted(const struct shard *shard, const struct parameter_slot *slot)
{
    return slot->version == shard->version || (shard->whole_known && slot->version == shard->whole);
}

static bool may_go(const struct shard *shard, const struct parameter_slot *slot)
{
    if (!slot->used)
        return true;
    if (slot->writing || wanted(shard, slot))
        return false;
    return slot->pins == 0 || shard->plant.pin_ignored;
}

/* Readers that were given their time and still hold a slot that is needed. */
static void hang_up_late_readers(struct shard *shard)
{
    struct pull *pulls = pulls_of(shard);
    for (uint32_t i = 0; i < shard->options.pulls_max; i++) {
        struct pull *pull = &pulls[i];
        if (pull->used && !pull->abandoned && pull->parameters != UINT32_MAX &&
            shard->now_ns > pull->deadline_ns &&
            !wanted(shard, &shard->parameters[pull->parameters])) {
            pull->abandoned = true;
            act(shard, SHARD_HANGUP)->peer = pull->peer;
        }
    }
}

uint32_t parameters_free(const struct shard *shard)
{
    uint32_t best = UINT32_MAX;
    const bool lent = slots_lent(shard); /* the last one, to first parameters */
    const uint32_t count = shard->options.member.parameter_slots - lent;
    for (uint32_t i = 0; i < count; i++) {
        const struct parameter_slot *slot = &shard->parameters[i];
        if (!may_go(shard, slot))
            continue;
        if (!slot->used)
            return i;
        if (best == UINT32_MAX || slot->version < shard->parameters[best].version)
            best = i;
    }
    return best;
}

uint32_t parameters_spare(struct shard *shard)
{
    const uint32_t spare = parameters_free(shard);
    if (spare == UINT32_MAX)
        hang_up_late_readers(shard);
    return spare;
}

static void send_gone(struct shard *shard, const struct pull *pull)
{
    struct head_parameters head = {.kind = HEAD_GONE,
                                   .session = pull->session,
                                   .timeline = shard->ledger.timeline,
                                   .ticket = pull->ticket,
                                   .version = shard->whole};
    struct shard_action *action = act(shard, SHARD_REPLY);
    action->peer = pull->peer;
    memcpy(&action->head, &head, sizeof head);
}

/* The log has the verdict that this pull waits for. From then on it waits for the newest version
 * that the log has, or has made due: the same on all shards, since they fold the same log. */
static bool judged(const struct shard *shard, struct pull *pull)
{
    const struct ledger_worker *worker = &shard->ledger.workers[pull->worker];
    if (pull->after == 0)
        return true;
    if (worker->incarnation < pull->incarnation ||
        (worker->incarnation == pull->incarnation && worker->last_sequence < pull->after))
        return false;
    const uint64_t version = ledger_version(&shard->ledger) + law_due(&shard->ledger.law, LAW_DUE);
    if (version > pull->version)
        pull->version = version;
    pull->after = 0;
    return true;
}

/* The slot that answers this pull now, or UINT32_MAX. */
static uint32_t answer_of(const struct shard *shard, struct pull *pull)
{
    if (!shard->has_first || !judged(shard, pull))
        return UINT32_MAX;
    if (pull->exact)
        return parameters_find(shard, pull->version);
    const uint64_t newest = shard->plant.whole_early ? shard->version : shard->whole;
    const bool enough = pull->newer ? newest > pull->version : newest >= pull->version;
    return enough ? parameters_find(shard, newest) : UINT32_MAX;
}

/* Bodies as long as there is room for them. An empty range is answered by one head without a body.
 */
static void send_bodies(struct shard *shard, struct pull *pull, uint32_t index)
{
    pull->starved = false;
    do {
        pull->starved = !body_send(shard, pull, index);
    } while (!pull->starved && pull->sent < pull->total && pull->in_flight < REPLIES_AHEAD);
}

static void start_answer(struct shard *shard, struct pull *pull, uint32_t index,
                         uint32_t parameters)
{
    pull->parameters = parameters;
    shard->parameters[parameters].pins++;
    shard->figures.pulls_waiting--;
    pull->deadline_ns = shard->now_ns + shard->options.pull_patience_ns;
    send_bodies(shard, pull, index);
}

static void end_pull(struct shard *shard, struct pull *pull)
{
    if (pull->parameters != UINT32_MAX)
        shard->parameters[pull->parameters].pins--;
    else if (!pull->landing)
        shard->figures.pulls_waiting--;
    pull->used = false;
}

static void try_pull(struct shard *shard, struct pull *pull, uint32_t index)
{
    if (!pull->used || pull->landing || pull->parameters != UINT32_MAX)
        return;
    const uint32_t parameters = answer_of(shard, pull);
    const bool hopeless =
        pull->newer || (pull->exact && shard->has_first && pull->version < shard->version);
    if (parameters != UINT32_MAX) {
        start_answer(shard, pull, index, parameters);
    } else if (hopeless || shard->now_ns >= pull->deadline_ns) {
        send_gone(shard, pull);
        end_pull(shard, pull);
    }
}

void pulls_retry(struct shard *shard)
{
    shard->pulls_due = false;
    if (shard->figures.pulls_waiting == 0)
        return;
    struct pull *pulls = pulls_of(shard);
    for (uint32_t i = 0; i < shard->options.pulls_max; i++)
        try_pull(shard, &pulls[i], i);
}

/* Not at once: the records that came along, a STEP above all, are folded first. */
void pulls_judged(struct shard *shard)
{
    shard->pulls_due = shard->figures.pulls_waiting > 0;
}

int64_t pulls_next(const struct shard *shard)
{
    int64_t next = INT64_MAX;
    if (shard->figures.pulls_waiting == 0)
        return next;
    if (shard->pulls_due)
        return shard->now_ns;
    const struct pull *pulls = (const struct pull *)((const char *)shard + shard->at.pulls);
    for (uint32_t i = 0; i < shard->options.pulls_max; i++)
        if (pulls[i].used && !pulls[i].landing && pulls[i].parameters == UINT32_MAX &&
            pulls[i].deadline_ns < next)
            next = pulls[i].deadline_ns;
    return next;
}

/* Whether what it asks for is a part of this range. The pieces are looked at when they are here. */
static bool is_sound(const struct shard *shard, const struct head_pull *head, uint64_t body)
{
    if (head->timeline != shard->ledger.timeline)
        return false;
    if (head->flags & PULL_PIECES)
        return head->pieces > 0 && head->pieces <= PIECES_MAX &&
               body == head->pieces * sizeof(struct piece) && head->offset == 0 &&
               (head->dtype == HEAD_FLOAT32 || head->dtype == HEAD_BFLOAT16) &&
               shard->now_ns >= shard->quiet_until_ns; /* no dead process' list may land in it */
    const uint64_t rest = shard->body_bytes - head->offset;
    return body == 0 && head->offset <= shard->body_bytes && head->dtype == HEAD_FLOAT32 &&
           (head->length <= rest || head->length == UINT64_MAX);
}

/* The longest body of an answer to this peer: some elements and strided pieces are not to be cut,
 * so that it is a multiple of 64, and of that one at least. */
static uint64_t portion_of(const struct shard *shard, const struct shard_event *event)
{
    const uint64_t most = shard->options.chunk_bytes, portion = event->portion / 64 * 64;
    return portion == 0 || portion > most ? most : portion;
}

static struct pull pull_of(const struct shard *shard, const struct head_pull *head, uint64_t peer)
{
    const bool listed = head->flags & PULL_PIECES;
    const bool to_end = head->length == UINT64_MAX;
    return (struct pull){.used = true,
                         .exact = head->flags & PULL_EXACT,
                         .newer = head->flags & PULL_NEWER,
                         .half = listed && head->dtype == HEAD_BFLOAT16,
                         .landing = listed,
                         .session = head->session,
                         .parameters = UINT32_MAX,
                         .pieces = listed ? head->pieces : 0,
                         .crc = head->crc,
                         .peer = peer,
                         .ticket = head->ticket,
                         .version = head->version,
                         .offset = head->offset,
                         .length = head->length,
                         .total = to_end ? shard->body_bytes - head->offset : head->length,
                         .deadline_ns = shard->now_ns + shard->options.pull_patience_ns};
}

static void refuse(struct shard *shard, const struct shard_event *event, const struct pull *pull)
{
    if (event->length)
        act(shard, SHARD_REFUSE)->offer = event->offer;
    send_gone(shard, pull);
}

static void take_list(struct shard *shard, const struct pull *pull, uint32_t index,
                      const struct shard_event *event)
{
    struct shard_action *action = act(shard, SHARD_TAKE);
    action->peer = event->peer;
    action->offer = event->offer;
    action->offset = shard->at.lists + (uint64_t)index * PIECES_MAX * sizeof(struct piece);
    action->length = event->length;
    action->token = token_make(TOKEN_LIST, pull->number, index);
}

void pull_asked(struct shard *shard, const struct shard_event *event)
{
    struct head_pull head;
    memcpy(&head, event->head, sizeof head);
    const struct session *session = session_find(shard, head.session, event->peer);
    struct pull asked = pull_of(shard, &head, event->peer);
    if (!session || !is_sound(shard, &head, event->length)) {
        shard->figures.heads_dropped++;
        refuse(shard, event, &asked);
        return;
    }
    if (head.flags & PULL_AFTER && !asked.exact) {
        asked.worker = session->worker;
        asked.incarnation = session->incarnation;
        asked.after = head.after;
    }
    struct pull *pulls = pulls_of(shard);
    uint32_t i = 0;
    while (i < shard->options.pulls_max && pulls[i].used)
        i++;
    if (i == shard->options.pulls_max) {
        refuse(shard, event, &asked);
        return;
    }
    asked.portion = portion_of(shard, event);
    pulls[i] = asked;
    pulls[i].number = ++shard->pull_numbers;
    if (asked.landing) {
        take_list(shard, &pulls[i], i, event);
        return;
    }
    shard->figures.pulls_waiting++;
    try_pull(shard, &pulls[i], i);
}

/* A list that arrived as it was sent and makes no sense is from no client of ours. */
void pull_listed(struct shard *shard, const struct shard_event *event)
{
    const uint32_t index = (uint32_t)token_low(event->token);
    struct pull *pull = &pulls_of(shard)[index];
    ASSERT(pull->used && pull->landing && pull->number == (uint32_t)token_high(event->token));
    const struct piece_range range = pull_range(shard);
    const struct piece *list = pull_list(shard, index);
    if (pull->abandoned) {
        end_pull(shard, pull);
        return;
    }
    const bool intact = event->status == GRADWEIR_OK && event->crc == pull->crc;
    if (!intact || !pieces_sound(list, pull->pieces, &range, pull->length)) {
        shard->figures.checksum_failures += event->status == GRADWEIR_OK && !intact;
        shard->figures.heads_dropped++;
        end_pull(shard, pull);
        if (intact)
            act(shard, SHARD_HANGUP)->peer = pull->peer;
        else if (event->status == GRADWEIR_OK)
            send_gone(shard, pull);
        return;
    }
    pull->landing = false;
    pull->total = 0;
    for (uint32_t i = 0; i < pull->pieces; i++)
        pull->total += piece_wire(&list[i], &range, pull->half);
    shard->figures.pulls_waiting++;
    try_pull(shard, pull, index);
}

/* A place for a body has become free: whoever waits longest for one, by its number. */
static void feed_starved(struct shard *shard)
{
    struct pull *pulls = pulls_of(shard);
    for (uint32_t tries = 0; tries < BODIES; tries++) {
        uint32_t oldest = UINT32_MAX;
        for (uint32_t i = 0; i < shard->options.pulls_max; i++)
            if (pulls[i].used && pulls[i].starved && !pulls[i].abandoned &&
                pulls[i].made < BODIES_AHEAD &&
                (oldest == UINT32_MAX || pulls[i].number < pulls[oldest].number))
                oldest = i;
        if (oldest == UINT32_MAX)
            return;
        send_bodies(shard, &pulls[oldest], oldest);
        if (pulls[oldest].starved && pulls[oldest].made < BODIES_AHEAD)
            return; /* no place is left */
    }
}

void pull_sent(struct shard *shard, const struct shard_event *event)
{
    const uint32_t index = (uint32_t)token_low(event->token) & (BODY_INDEXES - 1);
    struct pull *pull = &pulls_of(shard)[index];
    ASSERT(pull->used && pull->number == (uint32_t)token_high(event->token));
    body_sent(shard, pull, event->token);
    if (event->status != GRADWEIR_OK)
        pull->abandoned = true;
    if (!pull->abandoned && pull->sent < pull->total) {
        send_bodies(shard, pull, index);
    } else if (pull->in_flight == 0) {
        end_pull(shard, pull);
        apply_advance(shard); /* a step may have waited for this slot */
    }
    if (token_low(event->token) >= BODY_INDEXES)
        feed_starved(shard);
}

void pull_peer_lost(struct shard *shard, uint64_t peer)
{
    struct pull *pulls = pulls_of(shard);
    for (uint32_t i = 0; i < shard->options.pulls_max; i++) {
        if (!pulls[i].used || pulls[i].peer != peer)
            continue;
        pulls[i].abandoned = true;
        if (pulls[i].in_flight == 0 && !pulls[i].landing)
            end_pull(shard, &pulls[i]);
    }
}
