/* Control links. Within a connection messages arrive in order; a connection may break, and then a
 * tail of what was under way is lost. The coordinator learns of it later than the worker, who may
 * be back under a new number by then. A shard that comes back says who it is, and both sides say
 * again what may have been lost. */
#include "tests/sim/sim.h"

#include <string.h>

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
    if (message->kind == MESSAGE_PAGE) {
        ASSERT(message->page.bytes <= sizeof node->page);
        memcpy(node->page, message->page.data, message->page.bytes);
        node->message.page.data = node->page;
    }
    return index;
}

void control_release(struct sim *sim, uint32_t message)
{
    sim->messages[message].next = sim->messages_free;
    sim->messages_free = message;
}

static int64_t arrival(struct sim *sim, int64_t *clock_ns)
{
    int64_t at = sim->now_ns + event_delay(sim, 1);
    if (at <= *clock_ns)
        at = *clock_ns + 1;
    return *clock_ns = at;
}

void control_up(struct sim *sim, uint32_t actor)
{
    struct sim_actor *who = &sim->actors[actor];
    if (++sim->peers_n >= SIM_PEERS)
        sim_fail(sim, "more than %d control connections: something connects without end",
                 SIM_PEERS);
    sim->peers[sim->peers_n] =
        (struct sim_peer){.actor = actor, .process = who->process, .cut_ns = INT64_MAX};
    who->peer = sim->peers_n;
    who->clock_ns[0] = who->clock_ns[1] = sim->now_ns;
}

/* Shards have the first peer numbers; workers come and go. */
void control_start(struct sim *sim)
{
    sim->peers_n = 0;
    for (uint32_t i = 0; i < sim->settings.shards; i++)
        control_up(sim, actor_shard(i));
}

void control_break(struct sim *sim, uint32_t actor, bool tell)
{
    struct sim_actor *who = &sim->actors[actor];
    if (who->peer == 0)
        return;
    struct sim_peer *peer = &sim->peers[who->peer];
    const double patience = chance(&sim->network, 0.3) ? 20 : 2; /* up to a missed heartbeat */
    peer->cut_ns = sim->now_ns + event_delay(sim, between(&sim->network, 0, patience));
    event_add(sim,
              (struct sim_event){.at_ns = peer->cut_ns + 1, .kind = SIM_LOST, .from = who->peer});
    who->peer = 0;
    if (tell)
        event_add(sim, (struct sim_event){.at_ns = sim->now_ns,
                                          .kind = SIM_DOWN,
                                          .actor = actor,
                                          .process = who->process});
}

void control_to_coordinator(struct sim *sim, uint32_t actor, const struct message *message)
{
    struct sim_actor *who = &sim->actors[actor];
    if (who->peer == 0)
        return;
    event_add(sim, (struct sim_event){.at_ns = arrival(sim, &who->clock_ns[0]),
                                      .kind = SIM_CONTROL,
                                      .from = who->peer,
                                      .what = control_copy(sim, message)});
}

void control_to_peer(struct sim *sim, uint32_t number, const struct message *message)
{
    if (number == 0)
        return; /* a shard that is not here */
    if (number > sim->peers_n)
        sim_fail(sim, "the coordinator sends %s to peer %u, which never was",
                 message_name(message->kind), number);
    const struct sim_peer *peer = &sim->peers[number];
    struct sim_actor *who = &sim->actors[peer->actor];
    if (who->peer != number)
        return; /* broken, and not known yet */
    event_add(sim, (struct sim_event){.at_ns = arrival(sim, &who->clock_ns[1]),
                                      .kind = SIM_CONTROL,
                                      .actor = peer->actor,
                                      .process = peer->process,
                                      .from = number,
                                      .what = control_copy(sim, message)});
}

static void to_coordinator(struct sim *sim, const struct sim_event *event)
{
    const struct sim_peer *peer = &sim->peers[event->from];
    const struct message *message = &sim->messages[event->what].message;
    if (peer->lost || event->at_ns > peer->cut_ns)
        return;
    if (peer->actor > 0 && peer->actor <= SIM_SHARDS && message->kind == MESSAGE_FREED)
        check_freed(sim, peer->actor - 1, &message->freed, true);
    sim_tell(sim, "coordinator hears %s from %u", message_name(message->kind), event->from);
    server_order(sim, &(struct order_event){.kind = ORDER_MESSAGE,
                                            .now_ns = sim->now_ns,
                                            .peer = event->from,
                                            .message = message});
}

void control_arrives(struct sim *sim, const struct sim_event *event)
{
    const struct message *message = &sim->messages[event->what].message;
    if (event->actor == 0)
        to_coordinator(sim, event);
    else if (sim->actors[event->actor].peer != event->from)
        ; /* lost with its connection */
    else if (event->actor <= SIM_SHARDS)
        server_shard_message(sim, event->actor - 1, message);
    else
        worker_message(sim, event->actor - 1 - SIM_SHARDS, message);
    control_release(sim, event->what);
}
