/* A coordinator's shell: carries out what the core wants, and looks at each action on the way; and
 * its supervisor, who starts another. */
#include "tests/sim/sim_calls.h"

#include "common/wire.h"

#include <string.h>

static void send_pages(struct sim *sim, const struct order_action *action)
{
    struct message message = {
        .kind = MESSAGE_PAGE, .epoch = action->message.epoch, .timeline = action->message.timeline};
    for (uint32_t i = 0; i < content_pages(action->bytes_count); i++) {
        content_page(action->message.want.content, action->bytes, action->bytes_count, i,
                     &message.page);
        control_to_peer(sim, action->peer, &message);
    }
}

/* It gives up, or has finished. When it was the one that everybody should follow, its supervisor
 * starts another. */
static void exits(struct sim *sim, uint32_t index, const struct message_denied *why)
{
    sim_tell(sim, "%s exits: %s", story_actor(sim, index), why->text);
    if (why->status == GRADWEIR_OK && sim->quiet && sim->settings.drain)
        sim->exited = true;
    else if (why->status != GRADWEIR_ERR_FENCED)
        sim_fail(sim, "%s gives up: %s", story_actor(sim, index), why->text);
    else {
        sim->counts.coordinators_fenced++;
        server_coordinator_dies(sim, index);
    }
}

/* Who dies in the middle of sending has reached some. */
static uint32_t reached(struct sim *sim, const struct sim_coordinator *coordinator)
{
    const uint32_t shards = sim->settings.shards;
    return coordinator->last_words ? (uint32_t)random_below(&sim->network, shards + 1) : shards;
}

static void carry_out(struct sim *sim, uint32_t index, const struct order_action *action)
{
    struct sim_coordinator *coordinator = &sim->coordinators[index];
    switch (action->kind) {
    case ORDER_SEND:
        check_told(sim, index, &action->message);
        if (action->message.kind == MESSAGE_MEMBER)
            coordinator->members[action->message.member.shard] = action->peer;
        control_to_peer(sim, action->peer, &action->message);
        break;
    case ORDER_SEND_ALL:
        check_told(sim, index, &action->message);
        for (uint32_t i = 0; i < reached(sim, coordinator); i++)
            control_to_peer(sim, coordinator->members[i], &action->message);
        break;
    case ORDER_APPEND: check_append(sim, index, &action->message.record); break;
    case ORDER_CONTENT: send_pages(sim, action); break;
    case ORDER_DROP: break;
    case ORDER_SAY:
        sim_tell(sim, "%s says: %s", story_actor(sim, index), action->message.denied.text);
        break;
    case ORDER_EXIT: exits(sim, index, &action->message.denied); break;
    }
}

/* How many of its actions a process that is about to die gets done. */
static uint32_t how_far(struct sim *sim, uint32_t index)
{
    const uint32_t count = sim->order_actions.count;
    if (!sim->coordinators[index].doomed || count == 0)
        return count;
    sim_tell(sim, "%s dies in the middle of its step", story_actor(sim, index));
    return (uint32_t)random_below(&sim->network, count);
}

void server_order(struct sim *sim, uint32_t index, const struct order_event *given)
{
    struct order *order = sim->coordinators[index].order;
    struct order_figures before, after;
    struct order_event event = *given;
    const bool old =
        event.kind == ORDER_MESSAGE && check_is_old(order_ledger(order), event.message);
    event.now_ns = sim->now_ns + sim->actors[index].skew_ns;
    if (old)
        order_figures(order, &before);
    order_step(order, &event, &sim->order_actions);
    if (!order_sound(order))
        sim_fail(sim, "%s has lost sight of a slot or a worker", story_actor(sim, index));
    if (old) {
        order_figures(order, &after);
        if (after.foreign == before.foreign)
            sim_fail(sim, "%s listens to %s of an incarnation that is over",
                     story_actor(sim, index), message_name(event.message->kind));
    }
    const uint32_t done = how_far(sim, index);
    for (uint32_t i = 0; i < done && sim->actors[index].alive; i++) {
        sim->coordinators[index].last_words = i + 1 == done && done < sim->order_actions.count;
        carry_out(sim, index, &sim->order_actions.items[i]);
    }
    if (done < sim->order_actions.count && sim->actors[index].alive)
        server_coordinator_dies(sim, index);
    if (!sim->actors[index].alive)
        return;
    const int64_t next = order_next(order);
    if (event.kind == ORDER_TICK && next <= event.now_ns)
        sim_fail(sim, "the loop of %s spins: its next tick is due in the past",
                 story_actor(sim, index));
    server_wake(sim, index, next);
}

/* Its connections break: some of the others notice soon, some late. */
void server_coordinator_dies(struct sim *sim, uint32_t index)
{
    sim->actors[index].alive = false;
    sim->actors[index].process++;
    for (uint32_t i = actor_shard(0); i < SIM_ACTORS; i++)
        control_lost_at(sim, i, index, sim->now_ns + event_delay(sim, 10));
    if (index == sim->newest)
        event_add(sim, (struct sim_event){.at_ns = sim->now_ns + event_delay(sim, 30),
                                          .kind = SIM_SUPERVISE});
}

/* Room for one more: the one that was replaced the longest ago goes. */
static uint32_t find_room(struct sim *sim)
{
    uint32_t oldest = SIM_COORDINATORS;
    for (uint32_t i = 0; i < SIM_COORDINATORS; i++) {
        if (!sim->actors[i].alive)
            return i;
        if (oldest == SIM_COORDINATORS ||
            sim->coordinators[i].number < sim->coordinators[oldest].number)
            oldest = i;
    }
    server_coordinator_dies(sim, oldest);
    return oldest;
}

/* Who comes later inherits all slots; so may the first, where another began the job before it had
 * its shards. */
void server_coordinator(struct sim *sim)
{
    const uint32_t index = find_room(sim);
    struct sim_coordinator *coordinator = &sim->coordinators[index];
    struct sim_actor *actor = &sim->actors[index];
    struct order_options options = sim->settings.order;
    order_free(coordinator->order);
    memset(coordinator, 0, sizeof *coordinator);
    coordinator->number = sim->coordinators_n++;
    for (uint32_t i = 0; i < SLOTS_MAX; i++)
        coordinator->slots[i].state = CHECK_INHERITED;
    options.seed += (uint64_t)coordinator->number << 32;
    memcpy(options.instance, &options.seed, sizeof options.seed);
    if (order_new(&options, &coordinator->order) != GRADWEIR_OK)
        sim_fail(sim, "the coordinator: %s", fail_reason());
    if (sim->plant && order_plant(coordinator->order, sim->plant))
        sim->planted = true;
    if (order_actions_max(&options) > sim->order_actions.max)
        sim_fail(sim, "the simulator has too few coordinator actions");
    actor->alive = true;
    actor->process++;
    actor->tick_ns = actor->stopped_until_ns = 0;
    sim->newest = index;
    sim_tell(sim, "%s starts", story_actor(sim, index));

    server_wake(sim, index, order_next(coordinator->order));
}
