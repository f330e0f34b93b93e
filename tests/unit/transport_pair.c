/* Two transports in one thread. */
#include "tests/unit/transport_pair.h"

#include "common/clock.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct pair_setting pair_settings[] = {
    {"memory", "auto", "memory"},
#ifdef GRADWEIR_UCX
    {"ucx", "tcp", "tcp/lo"},
    {"ucx", "posix", "posix/"},
    {"ucx", "rc", ""}, /* last: only where there is a device */
#endif
};
size_t pair_setting_count = sizeof pair_settings / sizeof pair_settings[0];

#ifdef GRADWEIR_UCX
__attribute__((constructor)) static void leave_out_rdma(void)
{
    DIR *folder = opendir("/sys/class/infiniband");
    bool found = false;
    for (const struct dirent *entry = folder ? readdir(folder) : NULL; entry;
         entry = readdir(folder))
        found |= entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    pair_setting_count -= !found;
}
#endif

static void side_open(struct pair_side *side, const struct transport_settings *settings)
{
    *side = (struct pair_side){.seen = calloc(PAIR_SEEN_MAX, sizeof *side->seen)};
    cr_assert_eq(transport_open(settings, &side->transport), GRADWEIR_OK, "%s", fail_reason());
}

void pair_open(struct pair *pair, const struct pair_setting *setting,
               struct transport_settings limits)
{
    *pair = (struct pair){0};
    cr_assert_eq(transport_memory_hub_new(1 << 20, &pair->hub), GRADWEIR_OK);
    limits.backend = setting->backend;
    limits.lanes = setting->lanes;
    limits.hub = pair->hub;
    side_open(&pair->server, &limits);
    side_open(&pair->client, &limits);
    cr_assert_eq(transport_listen(pair->server.transport), GRADWEIR_OK, "%s", fail_reason());
    pair_connect(pair);
}

void pair_connect(struct pair *pair)
{
    const char *address = transport_address(pair->server.transport);
    cr_assert_eq(transport_connect(pair->client.transport, address, 120000, 77, &pair->client.peer),
                 GRADWEIR_OK, "%s", fail_reason());
    struct transport_event event = pair_await(pair, &pair->client, TRANSPORT_CONNECTED);
    cr_assert(event.peer == pair->client.peer && event.token == 77);
    pair->server.peer = pair_await(pair, &pair->server, TRANSPORT_ACCEPTED).peer;
}

void pair_close(struct pair *pair)
{
    transport_close(pair->client.transport);
    transport_close(pair->server.transport);
    transport_memory_hub_free(pair->hub);
    free(pair->client.seen);
    free(pair->server.seen);
}

static size_t side_poll(struct pair_side *side)
{
    if (!side->transport)
        return 0;
    struct transport_event events[8];
    size_t n = transport_poll(side->transport, events, 8);
    cr_assert_leq(side->seen_count + n, (size_t)PAIR_SEEN_MAX);
    memcpy(&side->seen[side->seen_count], events, n * sizeof events[0]);
    side->seen_count += n;
    return n;
}

void pair_pump(struct pair *pair)
{
    if (side_poll(&pair->server) + side_poll(&pair->client) > 0)
        return;
    struct pollfd ready[2] = {{.fd = -1, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    struct pair_side *sides[2] = {&pair->server, &pair->client};
    for (int i = 0; i < 2; i++) {
        if (!sides[i]->transport)
            continue;
        if (transport_arm(sides[i]->transport) != GRADWEIR_OK)
            return;
        ready[i].fd = transport_fd(sides[i]->transport);
    }
    if (poll(ready, 2, 5000) == 0) /* both sleep: nobody else would wake them */
        pair->stalls++;
}

struct transport_event pair_await(struct pair *pair, struct pair_side *side,
                                  enum transport_event_kind kind)
{
    uint64_t deadline_ns = clock_now_ns() + PAIR_WITHIN_MS * CLOCK_MS;
    for (size_t i = 0;; i++) {
        while (i == side->seen_count) {
            cr_assert(!deadline_passed(clock_now_ns(), deadline_ns), "event %d did not come",
                      (int)kind);
            pair_pump(pair);
        }
        if (side->seen[i].kind == kind) {
            struct transport_event event = side->seen[i];
            memmove(&side->seen[i], &side->seen[i + 1], (side->seen_count - i - 1) * sizeof event);
            side->seen_count--;
            return event;
        }
    }
}

size_t pair_count(const struct pair_side *side, enum transport_event_kind kind)
{
    size_t count = 0;
    for (size_t i = 0; i < side->seen_count; i++)
        count += side->seen[i].kind == kind;
    return count;
}

static unsigned char byte_of(uint64_t seed, uint64_t i)
{
    return (unsigned char)((i + seed) * UINT64_C(0x9E3779B97F4A7C15) >> 56);
}

void pair_fill(unsigned char *bytes, uint64_t length, uint64_t seed)
{
    for (uint64_t i = 0; i < length; i++)
        bytes[i] = byte_of(seed, i);
}

int pair_is_filled(const unsigned char *bytes, uint64_t length, uint64_t seed)
{
    for (uint64_t i = 0; i < length; i++) {
        if (bytes[i] != byte_of(seed, i))
            return 0;
    }
    return 1;
}

int pair_open_fds(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

uint64_t pair_loopback_bytes(void)
{
    char line[512];
    unsigned long long bytes = 0;
    FILE *file = fopen("/proc/net/dev", "r");
    cr_assert(file);
    while (fgets(line, sizeof line, file))
        sscanf(line, " lo: %llu", &bytes);
    fclose(file);
    return bytes;
}
