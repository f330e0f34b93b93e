/* A shard's thread: sets up, enlists, turns its loop until it is told to stop, takes down. */
#include "server/host_shard_loop.h"

#include "common/clock.h"
#include "common/idle.h"
#include "common/random.h"
#include "server/host_shard_memory.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* The coordinator has told member and layout: take the memory, say READY. */

static void say_ready(struct shard_loop *loop)
{
    control_send(loop->control, CONTROL_SERVER,
                 &(struct message){.kind = MESSAGE_READY,
                                   .epoch = shard_promise(loop->shard),
                                   .timeline = shard_ledger(loop->shard)->timeline,
                                   .ready = {.shard = loop->member.shard,
                                             .layout_hash = loop->member.layout_hash,
                                             .bytes = loop->arena_bytes}});
}

static gradweir_status layout_arrived(struct shard_loop *loop)
{
    struct model *model;
    TRY(model_decode(content_bytes(loop->assembler), content_count(loop->assembler), &model));
    gradweir_status status = shard_memory_take(loop, model);
    if (status == GRADWEIR_OK)
        status = shard_loop_record_start(loop, model, false);
    model_free(model);
    TRY(status);
    say_ready(loop);
    return GRADWEIR_OK;
}

static void tell_core(struct shard_loop *loop, const struct message *message)
{
    shard_loop_event(loop, &(struct shard_event){.kind = SHARD_MESSAGE,
                                                 .now_ns = (int64_t)clock_now_ns(),
                                                 .message = message});
}

/* A new connection to the coordinator begins with who we are; and so does one that it has mistaken
 * for an old one. */
static gradweir_status enlist(struct shard_loop *loop)
{
    struct message message = {.kind = MESSAGE_ENLIST, .epoch = 1, .timeline = 1};
    shard_enlist(loop->shard, &message.enlist);
    message.enlist.job = loop->host->options->job;
    message.enlist.shard = loop->host->index;
    memcpy(message.enlist.instance, loop->instance, sizeof message.enlist.instance);
    memcpy(message.enlist.address, loop->listener.address, sizeof message.enlist.address);
    control_send(loop->control, CONTROL_SERVER, &message);
    return GRADWEIR_OK;
}

static gradweir_status message_arrived(struct shard_loop *loop, const struct message *message)
{
    switch (message->kind) {
    case MESSAGE_STOP: loop->stopped = true; return GRADWEIR_OK;
    case MESSAGE_REJOIN: return enlist(loop);
    case MESSAGE_DENIED:
        return fail((gradweir_status)message->denied.status, "the coordinator says: %s",
                    message->denied.text);
    case MESSAGE_MEMBER:
        if (!loop->shard) {
            loop->member = message->member;
            loop->epoch = message->epoch;
            return GRADWEIR_OK;
        }
        /* A new connection: the core promises to follow, and says again what the old one may have
         * lost; READY is said in the epoch of that promise. */
        TRY(shard_memory_fits(loop, &message->member));
        tell_core(loop, message);
        say_ready(loop);
        return GRADWEIR_OK;
    case MESSAGE_PAGE:
        if (loop->shard || message->page.content != CONTENT_LAYOUT)
            return GRADWEIR_OK;
        TRY(content_add(loop->assembler, &message->page));
        return content_whole(loop->assembler) ? layout_arrived(loop) : GRADWEIR_OK;
    default:
        if (loop->shard)
            tell_core(loop, message);
        return GRADWEIR_OK;
    }
}

static gradweir_status turn_control(struct shard_loop *loop, bool *any)
{
    struct control_event *event;
    while ((event = control_poll(loop->control))) {
        *any = true;
        if (event->kind != CONTROL_MESSAGE) /* which may come behind the loss of its connection */
            loop->linked = event->kind == CONTROL_UP;
        if (event->kind == CONTROL_MESSAGE)
            TRY(message_arrived(loop, &event->message));
        else if (event->kind == CONTROL_UP)
            TRY(enlist(loop));
    }
    return GRADWEIR_OK;
}

/* While the coordinator has something to say, it hears the answer before more floats land: a record
 * that is logged is somebody's receipt. So many turns in a row at most. */
enum { TOLD_MAX = 4 };

static bool may_land(struct shard_loop *loop, bool told)
{
    loop->told = told ? (loop->told + 1) % TOLD_MAX : 0;
    return loop->told == 0;
}

static gradweir_status turn(struct shard_loop *loop, bool *any)
{
    bool told = false;
    TRY(turn_control(loop, &told));
    *any |= told;
    if (loop->shard)
        *any |= shard_loop_ahead(loop);
    if (may_land(loop, told))
        *any |= shard_loop_transport(loop);
    if (loop->shard) {
        *any |= shard_loop_device(loop);
        if (loop->device_failed != GRADWEIR_OK)
            return fail(loop->device_failed, "%s", loop->device_reason);
        const int64_t now = (int64_t)clock_now_ns();
        if (now >= shard_next(loop->shard))
            shard_loop_event(loop, &(struct shard_event){.kind = SHARD_TICK, .now_ns = now});
    }
    if (loop->shard)
        outbox_flush(&loop->outbox);
    control_flush(loop->control);
    return GRADWEIR_OK;
}

static gradweir_status connect_control(struct shard_loop *loop, struct control *within)
{
    const struct host_shard *host = loop->host;
    if (within)
        return control_connect_within(within, &loop->control);
    return control_connect(host->context, &host->options->control, host->coordinator,
                           &loop->control);
}

/* In the memory of a process of this shard that was killed, if there is any. */
static gradweir_status go_on(struct shard_loop *loop)
{
    struct model *model;
    TRY(shard_memory_find(loop));
    const char *record = loop->host->options->record;
    if (record[0] == 0)
        return GRADWEIR_OK;
    if (!loop->shard)
        return recording_try(record, loop->host->index);
    uint64_t bytes;
    const uint8_t *layout = shard_layout(loop->shard, &bytes);
    TRY(model_decode(layout, bytes, &model));
    const gradweir_status status = shard_loop_record_start(loop, model, true);
    model_free(model);
    return status;
}

static gradweir_status open_all(struct shard_loop *loop, struct control *within)
{
    TRY(random_entropy(loop->instance, sizeof loop->instance));
    const struct host_shard *host = loop->host;
    TRY(connect_control(loop, within));
    TRY(content_assembler_new(CONTENT_BYTES_MAX, &loop->assembler));
    const uint32_t peers_max = host->options->transport.peers_max;
    struct transport_settings settings = host->options->transport;
    settings.at_once = shard_loop_at_once;
    settings.at_once_context = loop;
    TRY(host_listen(host->options, &settings, &loop->listener, &loop->transport));
    loop->peers = calloc(peers_max, sizeof *loop->peers);
    if (!loop->peers)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for %u peers", peers_max);
    loop->peers_max = peers_max;
    char text[TRANSPORT_TEXT_SIZE] = "";
    if (transport_describe(loop->transport, 0, text, sizeof text) == GRADWEIR_OK)
        log_line(host->log, LOG_INFO, "transport", "shard %u at %s (for others %s): %s",
                 host->index, transport_address(loop->transport), loop->listener.address, text);
    loop->arithmetic = arithmetic_choose(host->options->simd);
    TRY(shard_memory_device(loop));
    return go_on(loop);
}

static void close_all(struct shard_loop *loop)
{
    transport_close(loop->transport);
    shard_memory_device_close(loop);
    shard_loop_record_end(loop);
    shard_loop_tables_free(loop);
    free(loop->peers);
    shard_memory_close(loop);
    content_assembler_free(loop->assembler);
    control_close(loop->control);
}

/* The loop's end, and why, once. */
static void ended(struct host_shard *host, gradweir_status status)
{
    host->status = status;
    if (status == GRADWEIR_OK)
        return;
    snprintf(host->reason, sizeof host->reason, "shard %u: %.480s", host->index, fail_reason());
    log_line(host->log, LOG_ERROR, "shard", "%s", host->reason);
}

gradweir_status host_shard_open(struct host_shard *host, struct control *within)
{
    host->loop = calloc(1, sizeof *host->loop);
    if (!host->loop)
        return fail(GRADWEIR_ERR_NO_MEMORY, "shard %u: no memory for its loop", host->index);
    host->loop->host = host;
    host->loop->arena_fd = -1;
    const gradweir_status status = open_all(host->loop, within);
    ended(host, status);
    return status;
}

/* Who asked us to end asked the coordinator, too: while there is one, it tells us when. */
static bool ends(struct host_shard *host)
{
    const bool nobody_tells = host->drain && atomic_load(host->drain) && !host->loop->linked;
    host->loop->stopped |= nobody_tells && atomic_load(host->over);
    return host->loop->stopped || atomic_load(host->stop) || nobody_tells;
}

bool host_shard_turn(struct host_shard *host, bool *any)
{
    if (ends(host))
        return false;
    const gradweir_status status = turn(host->loop, any);
    if (status != GRADWEIR_OK)
        ended(host, status);
    return status == GRADWEIR_OK;
}

bool host_shard_sleeps(struct host_shard *host, struct pollfd *fds, size_t *count, int *timeout_ms)
{
    struct shard_loop *loop = host->loop;
    if (transport_arm(loop->transport) != GRADWEIR_OK || control_ready(loop->control))
        return false;
    int control[2];
    fds[(*count)++] = (struct pollfd){.fd = transport_fd(loop->transport), .events = POLLIN};
    const size_t control_count = control_fds(loop->control, control);
    for (size_t i = 0; i < control_count; i++)
        fds[(*count)++] = (struct pollfd){.fd = control[i], .events = POLLIN};
    if (loop->shard && shard_next(loop->shard) != INT64_MAX) {
        const int due = deadline_poll_ms(clock_now_ns(), (uint64_t)shard_next(loop->shard));
        *timeout_ms = due < *timeout_ms ? due : *timeout_ms;
    }
    return true;
}

void host_shard_close(struct host_shard *host)
{
    if (host->loop)
        close_all(host->loop);
    free(host->loop);
    host->loop = NULL;
}

static void sleep_until_needed(struct host_shard *host)
{
    struct pollfd fds[HOST_SHARD_FDS_MAX];
    size_t count = 0;
    int timeout_ms = 200;
    if (host_shard_sleeps(host, fds, &count, &timeout_ms))
        poll(fds, count, timeout_ms);
}

static void *run(void *context)
{
    struct host_shard *host = context;
    struct idle idle;
    bool any = false;
    idle_init(&idle, host->options->look_ns);
    if (host_shard_open(host, NULL) == GRADWEIR_OK)
        while (host_shard_turn(host, &any)) {
            if (!idle_again(&idle, any))
                sleep_until_needed(host);
            any = false;
        }
    idle_deinit(&idle);
    host_shard_close(host);
    if (host->status != GRADWEIR_OK)
        atomic_store(host->stop, true);
    return NULL;
}

gradweir_status host_shard_start(struct host_shard *host)
{
    const int error = pthread_create(&host->thread, NULL, run, host);
    if (error)
        return fail(GRADWEIR_ERR_IO, "shard %u: no thread: %s", host->index, strerror(error));
    host->started = true;
    return GRADWEIR_OK;
}

gradweir_status host_shard_join(struct host_shard *host)
{
    if (host->started)
        pthread_join(host->thread, NULL);
    host->started = false;
    return host->status;
}
