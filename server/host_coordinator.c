/* Turns the coordinator's loop: messages in, actions out, sleep. */
#include "server/host_coordinator.h"

#include "common/clock.h"
#include "common/idle.h"
#include "common/wire.h"
#include "server/host_farewell.h"
#include "server/host_listen.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct coordinator_loop {
    struct host_coordinator *host;
    struct control *control;
    struct order *order;
    struct order_actions actions;
    uint32_t members[MEMBERS_MAX]; /* control peer of each shard; 0: none yet */
    bool enlisted[MEMBERS_MAX];    /* the shard has said that it is there, at least once */
    bool drained;                  /* DRAIN was given to the core */
    bool finished;
    struct host_farewell farewell;
    gradweir_status status; /* how it finished, and why */
    char reason[TEXT_MAX];
    bool had_workers;
    uint64_t alone_since_ns;
    struct idle idle;
};

static void send_content(struct coordinator_loop *loop, const struct order_action *action)
{
    struct message page = {
        .kind = MESSAGE_PAGE, .epoch = action->message.epoch, .timeline = action->message.timeline};
    const uint32_t content = action->message.want.content;
    const uint32_t pages = content_pages(action->bytes_count);
    for (uint32_t i = 0; i < pages; i++) {
        content_page(content, action->bytes, action->bytes_count, i, &page.page);
        control_send(loop->control, action->peer, &page);
    }
}

/* Shards of this process end with it, and tools do not answer. */
static bool answers_stop(const struct coordinator_loop *loop, uint32_t peer)
{
    const bool elsewhere = settings_bool(loop->host->options->settings, "shards_elsewhere");
    for (uint32_t i = 0; i < loop->host->options->shards; i++)
        if (loop->members[i] == peer)
            return elsewhere;
    return order_is_worker(loop->order, peer);
}

/* STOP, or why the job has ended otherwise. */
static bool is_last_word(const struct message *message)
{
    return message->kind == MESSAGE_STOP ||
           (message->kind == MESSAGE_DENIED && message->denied.status == GRADWEIR_ERR_LOST);
}

static void carry_out(struct coordinator_loop *loop, const struct order_action *action)
{
    switch (action->kind) {
    case ORDER_SEND:
        if (action->message.kind == MESSAGE_MEMBER)
            loop->members[action->message.member.shard] = action->peer;
        if (is_last_word(&action->message) && answers_stop(loop, action->peer))
            host_farewell_expect(&loop->farewell, action->peer);
        control_send(loop->control, action->peer, &action->message);
        break;
    case ORDER_SEND_ALL:
        control_send_all(loop->control, loop->members, loop->host->options->shards,
                         &action->message);
        break;
    case ORDER_APPEND: break; /* a shard writes the log: host_shard_record.c */
    case ORDER_CONTENT: send_content(loop, action); break;
    case ORDER_DROP: control_drop(loop->control, action->peer); break;
    case ORDER_SAY:
        log_line(loop->host->log, LOG_INFO, "order", "%s", action->message.denied.text);
        break;
    case ORDER_EXIT:
        loop->finished = true;
        loop->status = (gradweir_status)action->message.denied.status;
        memcpy(loop->reason, action->message.denied.text, sizeof loop->reason);
        break;
    }
}

static void step(struct coordinator_loop *loop, struct order_event *event)
{
    event->now_ns = (int64_t)clock_now_ns();
    loop->actions.count = 0;
    order_step(loop->order, event, &loop->actions);
    for (uint32_t i = 0; i < loop->actions.count; i++)
        carry_out(loop, &loop->actions.items[i]);
}

static void note_enlisted(struct coordinator_loop *loop, const struct control_event *event)
{
    if (event->kind == CONTROL_MESSAGE && event->message.kind == MESSAGE_ENLIST &&
        event->message.enlist.shard < MEMBERS_MAX)
        loop->enlisted[event->message.enlist.shard] = true;
}

static bool turn_control(struct coordinator_loop *loop)
{
    bool any = false;
    struct control_event *event;
    while ((event = control_poll(loop->control))) {
        any = true;
        note_enlisted(loop, event);
        step(loop, &(struct order_event){.kind = event->kind == CONTROL_MESSAGE ? ORDER_MESSAGE
                                                                                : ORDER_LOST,
                                         .peer = event->peer,
                                         .identity = control_identity(loop->control, event->peer),
                                         .message = &event->message});
    }
    return any;
}

/* With linger set, a server whose last worker has gone ends by itself. */
static bool lingered(struct coordinator_loop *loop)
{
    const int64_t linger_ns = loop->host->options->linger_ns;
    if (linger_ns == 0)
        return false;
    struct order_figures figures;
    order_figures(loop->order, &figures);
    const uint64_t now_ns = clock_now_ns();
    if (figures.workers_live) {
        loop->had_workers = true;
        loop->alone_since_ns = now_ns;
    }
    return loop->had_workers && now_ns - loop->alone_since_ns > (uint64_t)linger_ns;
}

/* This thread's shards. One that has ended otherwise than by STOP ends the server. */
static void turn_shards(struct coordinator_loop *loop, bool *any)
{
    for (uint32_t i = 0; i < loop->host->shards_count; i++) {
        struct host_shard *shard = &loop->host->shards[i];
        if (!shard->loop || shard->status != GRADWEIR_OK)
            continue; /* it, or one before it, could not be opened */
        if (!host_shard_turn(shard, any) && shard->status != GRADWEIR_OK)
            atomic_store(loop->host->stop, true);
    }
}

static void sleep_until_needed(struct coordinator_loop *loop)
{
    if (control_ready(loop->control))
        return;
    struct pollfd wait[3 + HOST_SHARD_FDS_MAX * MEMBERS_MAX] = {
        {.fd = loop->host->wake_fd, .events = POLLIN}};
    int fds[2];
    size_t count = 1;
    const size_t control_count = control_fds(loop->control, fds);
    for (size_t i = 0; i < control_count; i++)
        wait[count++] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    int timeout_ms = 200;
    for (uint32_t i = 0; i < loop->host->shards_count; i++)
        if (!host_shard_sleeps(&loop->host->shards[i], wait, &count, &timeout_ms))
            return;
    if (order_next(loop->order) != INT64_MAX) {
        const int due = deadline_poll_ms(clock_now_ns(), (uint64_t)order_next(loop->order));
        timeout_ms = due < timeout_ms ? due : timeout_ms;
    }
    poll(wait, count, timeout_ms);
}

/* A shard of this process that has not enlisted yet would never hear STOP, and nobody would end it:
 * a drain waits for it. It enlists, or fails and so ends the process. */
static bool may_drain(const struct coordinator_loop *loop)
{
    if (settings_bool(loop->host->options->settings, "shards_elsewhere"))
        return true;
    for (uint32_t i = 0; i < loop->host->options->shards; i++)
        if (!loop->enlisted[i])
            return false;
    return true;
}

static void turn(struct coordinator_loop *loop)
{
    bool any = turn_control(loop);
    turn_shards(loop, &any);
    const int64_t now_ns = (int64_t)clock_now_ns();
    if (now_ns >= order_next(loop->order))
        step(loop, &(struct order_event){.kind = ORDER_TICK});
    if (!loop->drained && (atomic_load(loop->host->drain) || lingered(loop)) && may_drain(loop)) {
        loop->drained = true;
        step(loop, &(struct order_event){.kind = ORDER_DRAIN});
    }
    control_flush(loop->control);
    if (!idle_again(&loop->idle, any))
        sleep_until_needed(loop);
}

static gradweir_status open_all(struct coordinator_loop *loop)
{
    struct host_coordinator *host = loop->host;
    const struct host_options *options = host->options;
    TRY(order_new(&options->order, &loop->order));
    loop->actions.max = order_actions_max(&options->order);
    loop->actions.items = calloc(loop->actions.max, sizeof *loop->actions.items);
    if (!loop->actions.items)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for the coordinator's actions");
    TRY(control_listen(host->context, &options->control, host->listen, HOST_INPROC,
                       &loop->control));
    for (uint32_t i = 0; i < host->shards_count; i++)
        TRY(host_shard_open(&host->shards[i], loop->control));
    char address[HOST_ADDRESS_MAX];
    host_advertise(options, control_address(loop->control), address, sizeof address);
    return host_write_port_file(settings_text(options->settings, "port_file"), address);
}

static void say_farewell(struct coordinator_loop *loop)
{
    bool any = false;
    turn_shards(loop, &any);
    if (loop->finished)
        host_farewell_wait(&loop->farewell, loop->control);
}

static void say_where(const struct coordinator_loop *loop)
{
    const struct host_options *options = loop->host->options;
    const char *address = control_address(loop->control);
    if (options->keys)
        log_line(loop->host->log, LOG_INFO, "control", "listening on %s, open to %u known keys",
                 address, options->control.allowed_count);
    else
        log_line(loop->host->log, options->control.insecure ? LOG_WARN : LOG_INFO, "control",
                 "listening on %s, insecure: without keys whoever reaches it may come in", address);
}

gradweir_status host_coordinator_run(struct host_coordinator *host, void (*bound)(void *),
                                     void *argument)
{
    struct coordinator_loop loop = {.host = host};
    /* Alone it has next to nothing to do: shards on threads of their own need the core rather. */
    idle_init(&loop.idle, host->shards_count ? host->options->look_ns : 0);
    gradweir_status status = open_all(&loop);
    if (status == GRADWEIR_OK) {
        say_where(&loop);
        if (bound)
            bound(argument);
    }
    while (status == GRADWEIR_OK && !loop.finished && !atomic_load(host->stop))
        turn(&loop);
    if (loop.control)
        say_farewell(&loop);
    for (uint32_t i = 0; i < host->shards_count; i++)
        host_shard_close(&host->shards[i]);
    control_close(loop.control);
    free(loop.actions.items);
    order_free(loop.order);
    idle_deinit(&loop.idle);
    if (status == GRADWEIR_OK && loop.status != GRADWEIR_OK)
        return fail(loop.status, "%s", loop.reason);
    return status;
}
