#include "server/coordinator/order.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* A coordinator, and what it answers to one message of a peer with a proved name. */
struct rig {
    struct order *order;
    struct order_actions actions;
    uint32_t peer;
    int64_t now_ns;
};

static struct rig rig(void)
{
    struct order_options options = {.job = 1,
                                    .seed = 1,
                                    .shards = 2,
                                    .workers_max = 4,
                                    .queue = 4,
                                    .window_max = 1,
                                    .outstanding_max = 1,
                                    .parameter_slots = 3,
                                    .chunk_bytes = 4096,
                                    .place_patience_ns = 1000000000,
                                    .push_patience_ns = 1000000000,
                                    .lease_ns = 1000000000,
                                    .shard_patience_ns = 1000000000,
                                    .ring = 64,
                                    .law = law_classic()};
    struct rig made = {.peer = 0};
    cr_assert_eq(order_new(&options, &made.order), GRADWEIR_OK, "%s", fail_reason());
    made.actions.max = order_actions_max(&options);
    made.actions.items = calloc(made.actions.max, sizeof *made.actions.items);
    return made;
}

static void done(struct rig *rig)
{
    free(rig->actions.items);
    order_free(rig->order);
}

/* The text of the DENIED that the message got, or NULL. */
static const char *denied(struct rig *rig, const char *identity, const struct message *message)
{
    order_step(rig->order,
               &(struct order_event){.kind = ORDER_MESSAGE,
                                     .now_ns = ++rig->now_ns,
                                     .peer = ++rig->peer,
                                     .identity = identity,
                                     .message = message},
               &rig->actions);
    for (uint32_t i = 0; i < rig->actions.count; i++) {
        const struct order_action *action = &rig->actions.items[i];
        if (action->kind == ORDER_SEND && action->message.kind == MESSAGE_DENIED) {
            cr_assert_eq(action->peer, rig->peer);
            return action->message.denied.text;
        }
    }
    return NULL;
}

static struct message join(const char *identity)
{
    struct message made = {.kind = MESSAGE_JOIN, .epoch = 1, .timeline = 1};
    made.join = (struct message_join){.protocol_oldest = PROTOCOL_OLDEST,
                                      .protocol_newest = PROTOCOL_VERSION,
                                      .role = ROLE_WORKER,
                                      .layout_hash = 7,
                                      .outstanding_max = 1};
    strcpy(made.join.identity, identity);
    return made;
}

static struct message enlist(uint32_t shard)
{
    struct message made = {.kind = MESSAGE_ENLIST, .epoch = 1, .timeline = 1};
    made.enlist = (struct message_enlist){.protocol_oldest = PROTOCOL_SERVERS,
                                          .protocol_newest = PROTOCOL_SERVERS,
                                          .shard = shard,
                                          .cold = 1};
    made.enlist.instance[0] = (uint8_t)(shard + 1);
    strcpy(made.enlist.address, "127.0.0.1:1");
    return made;
}

Test(order_keys, a_worker_joins_under_the_name_of_its_key_and_no_other)
{
    struct rig it = rig();
    const struct message as_one = join("worker-1"), as_none = join("");
    const char *why = denied(&it, "worker-0", &as_one);
    cr_assert_not_null(why, "worker-0's key joined as worker-1");
    cr_assert(strstr(why, "worker-0") && strstr(why, "worker-1"), "%s", why);
    cr_assert_not_null(denied(&it, "worker-10", &as_one), "a longer name passed for a shorter");
    cr_assert_null(denied(&it, "worker-1", &as_one));
    const struct message beside = join("worker-1/run");
    cr_assert_not_null(denied(&it, "worker-0", &beside));
    cr_assert_not_null(denied(&it, "worker-1/r", &beside), "a part of a name passed for it");
    cr_assert_not_null(denied(&it, "worker", &as_one));
    cr_assert_null(denied(&it, "worker-1", &beside), "two processes may share a key");
    cr_assert_null(denied(&it, "worker-2", &as_none), "who writes no name has its key's");
    cr_assert_null(denied(&it, "", &as_one), "without keys anybody may say who it is");
    cr_assert_null(denied(&it, NULL, &as_one));
    done(&it);
}

Test(order_keys, a_shard_is_who_holds_that_shards_key)
{
    struct rig it = rig();
    const struct message first = enlist(0), second = enlist(1), as_worker = join("");
    cr_assert_not_null(denied(&it, "worker-0", &first), "a worker became a shard");
    cr_assert_not_null(denied(&it, "shard-1", &first), "shard-1's key became shard 0");
    cr_assert_null(denied(&it, "shard-0", &first));
    cr_assert_null(denied(&it, "", &second), "a shard within the process needs none");
    cr_assert_not_null(denied(&it, "shard-1", &as_worker), "a shard's key became a worker");
    cr_assert_not_null(denied(&it, "server", &as_worker));
    done(&it);
}

Test(order_keys, a_rank_meets_only_under_the_name_of_its_key)
{
    struct rig made = rig();
    struct message swap = {.kind = MESSAGE_SWAP, .epoch = 1, .timeline = 1};
    swap.swap =
        (struct message_swap){.identity = "group-0", .ranks = 2, .instance = 1, .patience_ms = 9};
    cr_assert_null(denied(&made, "group-0", &swap));
    strcpy(swap.swap.identity, "group-0/left");
    cr_assert_null(denied(&made, "group-0", &swap));
    const char *text = denied(&made, "other", &swap);
    cr_assert(text && strstr(text, "the key of other cannot join as group-0/left"), "%s", text);
    cr_assert_not_null(denied(&made, "shard-0", &swap));
    done(&made);
}
