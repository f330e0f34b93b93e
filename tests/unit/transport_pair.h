/* Two transports in one thread, for the conformance tests: what each has seen, and waiting for what
 * must come.
 *
 * The pair sleeps on both descriptors whenever both say that they may; `stalls` counts sleeps that
 * ended by their own limit although something was awaited, so a lost wake-up cannot hide. */
#ifndef GRADWEIR_UNIT_TRANSPORT_PAIR_H
#define GRADWEIR_UNIT_TRANSPORT_PAIR_H

#include "common/transport.h"
#include "common/transport_memory.h"

#define PAIR_SEEN_MAX  8192
#define PAIR_WITHIN_MS 120000

struct pair_setting {
    const char *backend, *lanes;
    const char *described; /* how what describe says begins */
};

extern const struct pair_setting pair_settings[];
extern size_t pair_setting_count; /* with rc where there is an RDMA device: tests/rdma */

struct pair_side {
    struct transport *transport;
    uint64_t peer; /* the other side */
    struct transport_event *seen;
    size_t seen_count;
};

struct pair {
    struct transport_memory_hub *hub;
    struct pair_side server, client;
    uint64_t stalls;
};

/* Opens both sides and connects them; `limits` gives in_flight_max, offers_max and so on. */
void pair_open(struct pair *pair, const struct pair_setting *setting,
               struct transport_settings limits);
void pair_connect(struct pair *pair);
void pair_close(struct pair *pair);

/* One poll of both sides, and a sleep when there was nothing. */
void pair_pump(struct pair *pair);

/* The oldest event of this kind that was not asked for yet; fails the test when none comes. */
struct transport_event pair_await(struct pair *pair, struct pair_side *side,
                                  enum transport_event_kind kind);
size_t pair_count(const struct pair_side *side, enum transport_event_kind kind);

/* Body bytes that differ with seed and place. */
void pair_fill(unsigned char *bytes, uint64_t length, uint64_t seed);
int pair_is_filled(const unsigned char *bytes, uint64_t length, uint64_t seed);

int pair_open_fds(void);
uint64_t pair_loopback_bytes(void);

#endif
