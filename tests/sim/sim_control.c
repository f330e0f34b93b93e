/* Control links. Within a connection messages arrive, mostly in order; a connection may break, and
 * then a tail of what was under way is lost. The coordinator learns of it at another time than the
 * other side, who may be back under a new number by then. A shard that comes back says who it is,
 * and both sides say again what may have been lost.
 *
 * ZeroMQ keeps a connection's messages in order and delivers each once. The cores are asked for
 * more: whatever does not open a connection, and is not a record on its way to a shard, may come
 * twice or out of order while times are hostile. */
#include "tests/sim/sim_calls.h"

#include <string.h>

enum way { TO_COORDINATOR, FROM_COORDINATOR };

static uint32_t find_page(struct sim *sim)
{
    for (uint32_t i = 0; i < SIM_PAGES; i++)
        if (!sim->pages_used[i]) {
            sim->pages_used[i] = true;
            return i;
        }
    sim_fail(sim, "%d pages are under way: something sends without end", SIM_PAGES);
}

uint32_t control_copy(struct sim *sim, const struct message *message)
{
    const uint32_t index = sim->messages_free;
    if (index == UINT32_MAX)
        sim_fail(sim, "the simulator's messages are all under way: something sends without end");
    struct sim_message *node = &sim->messages[index];
    sim->messages_free = node->next;
    const bool record = message->kind == MESSAGE_RECORD;
    if (record && message->record.kind != RECORD_MAP)
        memcpy(&node->message, message,
               offsetof(struct message, record) + offsetof(struct record, step) +
                   sizeof(struct record_step));
    else
        node->message = *message;
    node->page = UINT32_MAX;
    if (message->kind == MESSAGE_PAGE) {
        node->page = find_page(sim);
        memcpy(sim->pages[node->page], message->page.data, message->page.bytes);
        node->message.page.data = sim->pages[node->page];
    }
    return index;
}

void control_release(struct sim *sim, uint32_t message)
{
    if (sim->messages[message].page != UINT32_MAX)
        sim->pages_used[sim->messages[message].page] = false;
    sim->messages[message].next = sim->messages_free;
    sim->messages_free = message;
}

/* Mostly the newest answers; while times are hostile, now and then one that it replaces. */
static uint32_t find_coordinator(struct sim *sim)
{
    const uint32_t other = (uint32_t)random_below(&sim->network, SIM_COORDINATORS);
    if (sim->hostile && sim->actors[other].alive && chance(&sim->network, 0.35))
        return other;
    return sim->newest;
}

bool control_up(struct sim *sim, uint32_t actor)
{
    struct sim_actor *who = &sim->actors[actor];
    const uint32_t coordinator = find_coordinator(sim);
    if (!sim->actors[coordinator].alive)
        return false;
    if (++sim->peers_n >= SIM_PEERS)
        sim_fail(sim, "more than %d control connections: something connects without end",
                 SIM_PEERS);
    sim->peers[sim->peers_n] =
        (struct sim_peer){.actor = actor,
                          .process = who->process,
                          .coordinator = coordinator,
                          .coordinator_process = sim->actors[coordinator].process,
                          .cut_ns = INT64_MAX};
    who->peer = sim->peers_n;

    return true;
}

void control_up_at(struct sim *sim, uint32_t actor, int64_t at_ns)
{
    event_add(sim, (struct sim_event){.at_ns = at_ns,
                                      .kind = SIM_UP,
                                      .actor = actor,
                                      .process = sim->actors[actor].process});
}

void control_break(struct sim *sim, uint32_t actor, int64_t tell_ns)
{
    struct sim_actor *who = &sim->actors[actor];
    if (who->peer == 0)
        return;
    struct sim_peer *peer = &sim->peers[who->peer];
    const double patience = chance(&sim->network, 0.3) ? 20 : 2; /* up to a missed heartbeat */
    peer->cut_ns = sim->now_ns + event_delay(sim, between(&sim->network, 0, patience));
    event_add(sim, (struct sim_event){.at_ns = peer->cut_ns + 1,
                                      .kind = SIM_LOST,
                                      .actor = peer->coordinator,
                                      .process = peer->coordinator_process,
                                      .from = who->peer});
    who->peer = 0;
    if (tell_ns != INT64_MAX)
        event_add(sim,
                  (struct sim_event){
                      .at_ns = tell_ns, .kind = SIM_DOWN, .actor = actor, .process = who->process});
}

/* The coordinator's process is dead: its peers notice by and by, and look for another. */
void control_lost_at(struct sim *sim, uint32_t actor, uint32_t coordinator, int64_t at_ns)
{
    const struct sim_actor *who = &sim->actors[actor];
    if (who->peer != 0 && sim->peers[who->peer].coordinator == coordinator)
        event_add(sim, (struct sim_event){.at_ns = at_ns,
                                          .kind = SIM_DOWN,
                                          .actor = actor,
                                          .process = who->process,
                                          .from = who->peer});
}

/* What opens a connection comes first and once; a shard's records come in the log's order. */
static bool keeps_its_place(const struct message *message)
{
    switch (message->kind) {
    case MESSAGE_RANK:
    case MESSAGE_ENLIST:
    case MESSAGE_MEMBER:
    case MESSAGE_PAGE:
    case MESSAGE_READY:
    case MESSAGE_SEALED:
    case MESSAGE_RECORD: return true;
    default: return false;
    }
}

static bool troubled(struct sim *sim, double p)
{
    return sim->hostile && chance(&sim->network, p * sim->settings.trouble);
}

static int64_t arrival(struct sim *sim, struct sim_peer *peer, enum way way, bool in_place)
{
    const struct sim_actor *who = &sim->actors[peer->actor];
    int64_t at = sim->now_ns + event_delay(sim, 1);
    if (at <= who->blocked_ns[way])
        at = who->blocked_ns[way] + event_delay(sim, 1);
    if (!in_place && troubled(sim, 0.08)) { /* those behind it come first */
        sim->counts.overtakes++;
        return at + event_delay(sim, 8);
    }
    if (at <= peer->clock_ns[way])
        at = peer->clock_ns[way] + 1;
    return peer->clock_ns[way] = at;
}

static void send(struct sim *sim, uint32_t number, enum way way, const struct message *message)
{
    struct sim_peer *peer = &sim->peers[number];
    const uint32_t actor = peer->actor;
    const struct sim_actor *who = &sim->actors[actor];
    const uint32_t coordinator = peer->coordinator;
    const uint32_t to = way == TO_COORDINATOR ? coordinator : actor;
    story_sent(sim, way == TO_COORDINATOR ? actor : coordinator, to, message);
    const bool in_place = keeps_its_place(message);
    struct sim_event event = {.at_ns = arrival(sim, peer, way, in_place),
                              .kind = SIM_CONTROL,
                              .actor = to,
                              .process =
                                  way == TO_COORDINATOR ? peer->coordinator_process : who->process,
                              .from = number,
                              .what = control_copy(sim, message)};
    event_add(sim, event);
    if (in_place || !troubled(sim, 0.03))
        return;
    sim->counts.duplicates++;
    event.at_ns += event_delay(sim, 6);
    event.what = control_copy(sim, message);
    event_add(sim, event);
}

void control_to_coordinator(struct sim *sim, uint32_t actor, const struct message *message)
{
    if (sim->actors[actor].peer != 0)
        send(sim, sim->actors[actor].peer, TO_COORDINATOR, message);
}

/* Whoever receives may read what came over a connection after it has given it up, and after it has
 * found another coordinator. Then only numbers tell who reigns. */
static bool comes_late(struct sim *sim, uint32_t number)
{
    struct sim_peer *peer = &sim->peers[number];
    const struct sim_actor *who = &sim->actors[peer->actor];
    const bool other = who->peer == 0 || sim->peers[who->peer].coordinator != peer->coordinator;
    if (peer->late == LATE_UNDECIDED)
        peer->late = troubled(sim, 0.7) ? LATE_HEARD : LATE_DROPPED;
    if (!who->alive || who->process != peer->process || !other || chance(&sim->network, 0.05))
        peer->late = LATE_DROPPED; /* and so is all that comes behind it */
    sim->counts.late_orders += peer->late == LATE_HEARD;
    return peer->late == LATE_HEARD;
}

void control_to_peer(struct sim *sim, uint32_t number, const struct message *message)
{
    if (number == 0)
        return; /* a shard that is not here */
    if (number > sim->peers_n)
        sim_fail(sim, "a coordinator sends %s to peer %u, which never was",
                 message_name(message->kind), number);
    const uint32_t actor = sim->peers[number].actor;
    if (sim->actors[actor].peer != number && !comes_late(sim, number))
        sim->counts.lost_messages++; /* broken, and not known yet */
    else
        send(sim, number, FROM_COORDINATOR, message);
}

static void to_coordinator(struct sim *sim, const struct sim_event *event)
{
    const struct sim_peer *peer = &sim->peers[event->from];
    const struct message *message = &sim->messages[event->what].message;
    if (peer->lost || event->at_ns > peer->cut_ns) {
        sim->counts.lost_messages++;
        return;
    }
    story_heard(sim, event->actor, peer->actor, message);
    if (actor_role(peer->actor) == SHARD && message->kind == MESSAGE_FREED)
        check_freed_heard(sim, event->actor, shard_of(peer->actor), &message->freed);
    server_order(
        sim, event->actor,
        &(struct order_event){.kind = ORDER_MESSAGE, .peer = event->from, .message = message});
}

void control_arrives(struct sim *sim, const struct sim_event *event)
{
    const struct message *message = &sim->messages[event->what].message;
    if (actor_role(event->actor) == COORDINATOR) {
        to_coordinator(sim, event);
    } else if (sim->actors[event->actor].peer != event->from && !comes_late(sim, event->from)) {
        sim->counts.lost_messages++;
    } else {
        story_heard(sim, event->actor, sim->peers[event->from].coordinator, message);
        if (actor_role(event->actor) == SHARD)
            server_shard_message(sim, shard_of(event->actor), message);
        else {
            const struct sim_peer *peer = &sim->peers[event->from];
            sim->heard_from = (uint64_t)peer->coordinator << 32 | peer->coordinator_process;
            worker_message(sim, worker_of(event->actor), message);
        }
    }
    control_release(sim, event->what);
}
