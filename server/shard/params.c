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

uint32_t parameters_spare(struct shard *shard)
{
    uint32_t best = UINT32_MAX;
    const bool lent = slots_first(shard); /* the last one, to first parameters */
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
    if (best == UINT32_MAX)
        hang_up_late_readers(shard);
    return best;
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
    return newest >= pull->version ? parameters_find(shard, newest) : UINT32_MAX;
}

static void send_body(struct shard *shard, struct pull *pull, uint32_t index)
{
    const uint64_t rest = pull->length - pull->sent;
    const uint64_t chunk = shard->options.chunk_bytes;
    struct head_parameters head = {.kind = HEAD_PARAMETERS,
                                   .session = pull->session,
                                   .timeline = shard->ledger.timeline,
                                   .ticket = pull->ticket,
                                   .version = shard->parameters[pull->parameters].version,
                                   .offset = pull->sent,
                                   .length = rest < chunk ? rest : chunk,
                                   .total = pull->length};
    struct shard_action *action = act(shard, SHARD_REPLY);
    action->peer = pull->peer;
    action->offset = parameter_offset(shard, pull->parameters) + pull->offset + pull->sent;
    action->length = head.length;
    action->token = token_make(TOKEN_PULL, pull->number, index);
    memcpy(&action->head, &head, sizeof head);
    pull->sent += head.length;
    pull->in_flight++;
    shard->parameters[pull->parameters].pins++;
    shard->figures.bytes_out += head.length;
}

/* An empty range is answered by one head without a body. */
static void start_answer(struct shard *shard, struct pull *pull, uint32_t index,
                         uint32_t parameters)
{
    pull->parameters = parameters;
    shard->figures.pulls_waiting--;
    pull->deadline_ns = shard->now_ns + shard->options.pull_patience_ns;
    do {
        send_body(shard, pull, index);
    } while (pull->sent < pull->length && pull->in_flight < REPLIES_AHEAD);
}

static void end_pull(struct shard *shard, struct pull *pull)
{
    if (pull->parameters == UINT32_MAX)
        shard->figures.pulls_waiting--;
    pull->used = false;
}

static void try_pull(struct shard *shard, struct pull *pull, uint32_t index)
{
    if (!pull->used || pull->parameters != UINT32_MAX)
        return;
    const uint32_t parameters = answer_of(shard, pull);
    const bool hopeless = pull->exact && shard->has_first && pull->version < shard->version;
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
        if (pulls[i].used && pulls[i].parameters == UINT32_MAX && pulls[i].deadline_ns < next)
            next = pulls[i].deadline_ns;
    return next;
}

void pull_asked(struct shard *shard, const struct shard_event *event)
{
    struct head_pull head;
    memcpy(&head, event->head, sizeof head);
    struct pull asked = {.used = true,
                         .exact = head.flags & PULL_EXACT,
                         .number = ++shard->pull_numbers,
                         .session = head.session,
                         .parameters = UINT32_MAX,
                         .peer = event->peer,
                         .ticket = head.ticket,
                         .version = head.version,
                         .offset = head.offset,
                         .length = head.length,
                         .deadline_ns = shard->now_ns + shard->options.pull_patience_ns};
    const bool whole = head.length == UINT64_MAX && head.offset <= shard->body_bytes;
    if (whole)
        asked.length = shard->body_bytes - head.offset;
    const bool sound = head.offset <= shard->body_bytes &&
                       asked.length <= shard->body_bytes - head.offset &&
                       head.dtype == HEAD_FLOAT32 && head.timeline == shard->ledger.timeline;
    const struct session *session = session_find(shard, head.session, event->peer);
    if (!session || !sound) {
        shard->figures.heads_dropped++;
        send_gone(shard, &asked);
        return;
    }
    if (head.flags & PULL_AFTER && !asked.exact) {
        asked.worker = session->worker;
        asked.incarnation = session->incarnation;
        asked.after = head.after;
    }
    struct pull *pulls = pulls_of(shard);
    for (uint32_t i = 0; i < shard->options.pulls_max; i++) {
        if (pulls[i].used)
            continue;
        pulls[i] = asked;
        shard->figures.pulls_waiting++;
        try_pull(shard, &pulls[i], i);
        return;
    }
    send_gone(shard, &asked);
}

void pull_sent(struct shard *shard, const struct shard_event *event)
{
    struct pull *pull = &pulls_of(shard)[token_low(event->token)];
    ASSERT(pull->used && pull->number == (uint32_t)token_high(event->token) && pull->in_flight);
    pull->in_flight--;
    shard->parameters[pull->parameters].pins--;
    if (!pull->abandoned && event->status == GRADWEIR_OK && pull->sent < pull->length) {
        send_body(shard, pull, (uint32_t)token_low(event->token));
    } else if (pull->in_flight == 0) {
        end_pull(shard, pull);
        apply_advance(shard); /* a step may have waited for this slot */
    }
}

void pull_peer_lost(struct shard *shard, uint64_t peer)
{
    struct pull *pulls = pulls_of(shard);
    for (uint32_t i = 0; i < shard->options.pulls_max; i++) {
        if (!pulls[i].used || pulls[i].peer != peer)
            continue;
        pulls[i].abandoned = true;
        if (pulls[i].in_flight == 0)
            end_pull(shard, &pulls[i]);
    }
}
