/* The transport backend within one process: hubs, and who can reach whom in them. */
#include "common/transport_memory_link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

gradweir_status transport_memory_hub_new(uint64_t step_bytes, struct transport_memory_hub **hub)
{
    struct transport_memory_hub *made = calloc(1, sizeof *made);
    if (!made)
        return fail(GRADWEIR_ERR_NO_MEMORY, "memory transport: no memory");
    pthread_mutex_init(&made->lock, NULL);
    made->step_bytes = step_bytes;
    *hub = made;
    return GRADWEIR_OK;
}

void transport_memory_hub_free(struct transport_memory_hub *hub)
{
    if (!hub)
        return;
    ASSERT(!hub->first);
    pthread_mutex_destroy(&hub->lock);
    free(hub);
}

void transport_memory_break_after(struct transport_memory_hub *hub, uint64_t countdown)
{
    pthread_mutex_lock(&hub->lock);
    hub->countdown = countdown;
    pthread_mutex_unlock(&hub->lock);
}

void transport_memory_know_cuda(struct transport_memory_hub *hub, transport_memory_reach reach)
{
    hub->reach = reach;
}

static struct memory_peer *peer_new(struct memory *memory)
{
    for (uint32_t i = 0; i < memory->settings.peers_max; i++) {
        struct memory_peer *peer = &memory->peers[i];
        if (peer->state != MEMORY_PEER_FREE)
            continue;
        struct memory_message *messages =
            &memory->messages[(size_t)i * memory->settings.in_flight_max];
        memset(messages, 0, memory->settings.in_flight_max * sizeof *messages);
        *peer = (struct memory_peer){.state = MEMORY_PEER_OPEN,
                                     .owner = memory,
                                     .number = transport_number(++memory->hub->serial, i),
                                     .messages = messages};
        return peer;
    }
    return NULL;
}

static void memory_free(struct memory *memory)
{
    if (memory->fd >= 0)
        close(memory->fd);
    transport_events_deinit(&memory->events);
    free(memory->messages);
    free(memory->peers);
    free(memory);
}

static gradweir_status memory_open(const struct transport_settings *settings,
                                   struct transport **transport)
{
    if (!settings->hub)
        return fail(GRADWEIR_ERR_INVALID, "transport: the memory backend wants a hub");
    struct memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return fail(GRADWEIR_ERR_NO_MEMORY, "memory transport: no memory");
    *memory = (struct memory){.base = {.functions = &transport_memory_functions},
                              .settings = *settings,
                              .hub = settings->hub,
                              .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    size_t messages = (size_t)settings->peers_max * settings->in_flight_max;
    memory->peers = calloc(settings->peers_max, sizeof *memory->peers);
    memory->messages = calloc(messages, sizeof *memory->messages);
    gradweir_status status = transport_events_init(&memory->events, settings);
    if (status != GRADWEIR_OK || memory->fd < 0 || !memory->peers || !memory->messages) {
        memory_free(memory);
        return fail(GRADWEIR_ERR_NO_MEMORY, "memory transport: no memory for %zu messages",
                    messages);
    }
    pthread_mutex_lock(&memory->hub->lock);
    memory->next = memory->hub->first;
    memory->hub->first = memory;
    pthread_mutex_unlock(&memory->hub->lock);
    *transport = &memory->base;
    return GRADWEIR_OK;
}

static void memory_close(struct transport *transport)
{
    struct memory *memory = (struct memory *)transport;
    pthread_mutex_lock(&memory->hub->lock);
    for (uint32_t i = 0; i < memory->settings.peers_max; i++) {
        if (memory->peers[i].state == MEMORY_PEER_OPEN)
            memory_link_break(&memory->peers[i], GRADWEIR_ERR_STOPPED, "closed");
    }
    struct memory **link = &memory->hub->first;
    while (*link != memory)
        link = &(*link)->next;
    *link = memory->next;
    pthread_mutex_unlock(&memory->hub->lock);
    memory_free(memory);
}

static struct memory *listener_find(struct transport_memory_hub *hub, const char *address)
{
    struct memory *memory = hub->first;
    while (memory && strcmp(memory->address, address) != 0)
        memory = memory->next;
    return memory;
}

/* Any text with a colon is an address here; port 0 becomes a number that nobody has. */
static bool is_address(const char *text)
{
    const char *colon = strrchr(text, ':');
    return colon && colon != text && colon[1] &&
           strspn(colon + 1, "0123456789") == strlen(colon + 1) && strlen(colon + 1) <= 5 &&
           strtoul(colon + 1, NULL, 10) <= 65535 &&
           strlen(text) < sizeof((struct memory *)0)->address - 20;
}

static gradweir_status memory_listen(struct transport *transport)
{
    struct memory *memory = (struct memory *)transport;
    const char *text = memory->settings.bind_address;
    if (memory->address[0])
        return fail(GRADWEIR_ERR_STATE, "already listening on %s", memory->address);
    if (!is_address(text))
        return fail(GRADWEIR_ERR_INVALID, "'%s' is not an address: expected host:port", text);
    size_t length = strlen(text);
    pthread_mutex_lock(&memory->hub->lock);
    bool taken = listener_find(memory->hub, text) != NULL;
    if (strcmp(text + length - 2, ":0") == 0)
        snprintf(memory->address, sizeof memory->address, "%.*s%llu", (int)length - 1, text,
                 (unsigned long long)(1024 + ++memory->hub->serial));
    else if (!taken)
        snprintf(memory->address, sizeof memory->address, "%s", text);
    pthread_mutex_unlock(&memory->hub->lock);
    if (taken)
        return fail(GRADWEIR_ERR_IO, "cannot listen on %s: %s", text, strerror(EADDRINUSE));
    return GRADWEIR_OK;
}

static void link_make(struct memory_peer *peer, const char *address)
{
    char reason[TRANSPORT_REASON_SIZE];
    struct memory *listener = listener_find(peer->owner->hub, address);
    struct memory_peer *other = listener ? peer_new(listener) : NULL;
    if (!other) {
        snprintf(reason, sizeof reason, "%s: %s", address,
                 listener ? "all its peers are in use" : "nobody is there");
        memory_lost(peer, GRADWEIR_ERR_UNREACHABLE, reason);
        return;
    }
    peer->other = other;
    other->other = peer;
    memory_tell(peer, TRANSPORT_CONNECTED)->token = peer->token;
    memory_tell(other, TRANSPORT_ACCEPTED);
}

static gradweir_status memory_connect(struct transport *transport, const char *address,
                                      uint32_t deadline_ms, uint64_t token, uint64_t *number)
{
    struct memory *memory = (struct memory *)transport;
    (void)deadline_ms;
    if (!is_address(address))
        return fail(GRADWEIR_ERR_INVALID, "'%s' is not an address: expected host:port", address);
    pthread_mutex_lock(&memory->hub->lock);
    struct memory_peer *peer = peer_new(memory);
    if (peer) {
        peer->token = token;
        link_make(peer, address);
        *number = peer->number;
    }
    pthread_mutex_unlock(&memory->hub->lock);
    if (!peer)
        return fail(GRADWEIR_ERR_FULL, "%s: all %u peers are in use", address,
                    memory->settings.peers_max);
    return GRADWEIR_OK;
}

static void memory_hangup(struct transport *transport, uint64_t number)
{
    struct memory *memory = (struct memory *)transport;
    pthread_mutex_lock(&memory->hub->lock);
    struct memory_peer *peer = memory_peer_find(memory, number);
    if (peer && peer->state == MEMORY_PEER_OPEN)
        memory_link_break(peer, GRADWEIR_ERR_STOPPED, "memory: hung up by this side");
    pthread_mutex_unlock(&memory->hub->lock);
}

static gradweir_status knows(const struct transport *transport, enum transport_memory_kind kind)
{
    const struct memory *memory = (const struct memory *)transport;
    return kind == TRANSPORT_MEMORY_HOST || memory->hub->reach
               ? GRADWEIR_OK
               : fail(GRADWEIR_ERR_UNSUPPORTED, "the memory transport knows host memory only");
}

static gradweir_status memory_map(struct transport *transport, enum transport_memory_kind kind,
                                  void *pointer, uint64_t length, uint32_t *mapped)
{
    struct memory *memory = (struct memory *)transport;
    TRY(knows(transport, kind));
    if (!pointer || length == 0)
        return fail(GRADWEIR_ERR_INVALID, "memory transport: nothing to map");
    if (memory->mapped == memory->settings.memories_max)
        return fail(GRADWEIR_ERR_FULL, "memory transport: %u memories are mapped already",
                    memory->mapped);
    *mapped = ++memory->mapped | (kind == TRANSPORT_MEMORY_CUDA ? MEMORY_IS_CUDA : 0);
    return GRADWEIR_OK;
}

static void memory_unmap(struct transport *transport, uint32_t mapped)
{
    struct memory *memory = (struct memory *)transport;
    ASSERT(mapped > 0 && memory->mapped > 0);
    memory->mapped--;
}

static gradweir_status memory_arm(struct transport *transport)
{
    struct memory *memory = (struct memory *)transport;
    pthread_mutex_lock(&memory->hub->lock);
    bool waiting = memory->events.count > 0;
    pthread_mutex_unlock(&memory->hub->lock);
    return waiting ? GRADWEIR_ERR_AGAIN : GRADWEIR_OK;
}

static int memory_fd(const struct transport *transport)
{
    return ((const struct memory *)transport)->fd;
}

static const char *memory_address(const struct transport *transport)
{
    return ((const struct memory *)transport)->address;
}

static gradweir_status memory_describe(struct transport *transport, uint64_t number, char *text,
                                       size_t size)
{
    struct memory *memory = (struct memory *)transport;
    pthread_mutex_lock(&memory->hub->lock);
    bool there = number == 0 || memory_peer_find(memory, number);
    pthread_mutex_unlock(&memory->hub->lock);
    if (!there)
        return fail(GRADWEIR_ERR_LOST, "this peer is gone");
    snprintf(text, size, "memory/process");
    return GRADWEIR_OK;
}

static uint64_t memory_portion(struct transport *transport, uint64_t peer)
{
    (void)transport;
    (void)peer;
    return UINT64_MAX;
}

const struct transport_functions transport_memory_functions = {
    .name = "memory",
    .open = memory_open,
    .close = memory_close,
    .listen = memory_listen,
    .connect = memory_connect,
    .hangup = memory_hangup,
    .room = memory_room,
    .room_back = memory_room_back,
    .send = memory_send,
    .body = memory_body,
    .take = memory_take,
    .refuse = memory_refuse,
    .poll = memory_poll,
    .memory_map = memory_map,
    .memory_unmap = memory_unmap,
    .knows = knows,
    .arm = memory_arm,
    .fd = memory_fd,
    .address = memory_address,
    .portion = memory_portion,
    .describe = memory_describe,
};
