/* When a push waits for its own chunks to leave before it makes the next one, and for how long.
 * Time passes only while the client sleeps, a millisecond each time; what leaves then is the
 * test's. */
#include "client/client_encode.h"
#include "common/clock.h"

#include <criterion/criterion.h>

enum { CHUNK = 1000, CHUNKS = 8, DEPARTURES = 8, PATIENCE_MS = 10 };

static struct gradweir_client client;
static struct client_encoding encoding;
static uint64_t now_ms, portion, departures[DEPARTURES];
static uint32_t departures_count, turns, sleeps;

uint64_t __wrap_clock_now_ns(void);
bool __wrap_client_turn(struct gradweir_client *turned);
void __wrap_client_sleep(struct gradweir_client *sleeps, uint64_t deadline_ns);

uint64_t __wrap_clock_now_ns(void)
{
    return now_ms * CLOCK_MS;
}

bool __wrap_client_turn(struct gradweir_client *turned)
{
    uint32_t any = 0;
    turns++;
    for (uint32_t i = 0; i < departures_count; i++)
        if (departures[i] != 0 && now_ms >= departures[i]) {
            departures[i] = 0;
            turned->session.members[0].in_flight--;
            any++;
        }
    return any > 0;
}

void __wrap_client_sleep(struct gradweir_client *sleeper, uint64_t deadline_ns)
{
    cr_assert(sleeper == &client && deadline_ns > now_ms * CLOCK_MS);
    now_ms++;
    sleeps++;
}

static uint64_t portion_of(struct transport *transport, uint64_t peer)
{
    cr_assert(transport == client.transport && peer == 77);
    return portion;
}

/* One open member whose chunks go by portions; so many are under way. bfloat16: there is no room at
 * the transport to wait for. */
static void begin(uint32_t in_flight)
{
    static const struct transport_functions functions = {.portion = portion_of};
    static struct transport transport = {.functions = &functions};
    client = (struct gradweir_client){.transport = &transport, .peers = {77}};
    client.session.members_count = 1;
    client.session.members[0] = (struct session_member){
        .state = MEMBER_OPEN, .bytes = CHUNK * CHUNKS, .in_flight = in_flight};
    encoding = (struct client_encoding){.client = &client, .codec = ARITHMETIC_BF16};
    portion = 256 << 10;
    now_ms = 1000;
    turns = sleeps = departures_count = 0;
}

static void departs(uint64_t after_ms)
{
    departures[departures_count++] = now_ms + after_ms;
}

static uint64_t next(void)
{
    return client_room_take(&encoding, CHUNK);
}

Test(client_room, one_chunk_under_way_is_not_waited_for)
{
    begin(1);
    cr_assert_eq(next(), CHUNK);
    cr_assert(!encoding.stays && sleeps == 0);
}

Test(client_room, of_two_under_way_one_leaves_before_the_next_is_made)
{
    begin(2);
    departs(PATIENCE_MS - 1);
    cr_assert_eq(next(), CHUNK);
    cr_assert(!encoding.stays);
    cr_assert_eq(sleeps, PATIENCE_MS - 1);
}

Test(client_room, while_chunks_leave_it_goes_on_waiting)
{
    begin(5);
    for (uint64_t i = 1; i <= 4; i++)
        departs(i * (PATIENCE_MS - 1));
    cr_assert_eq(next(), CHUNK);
    cr_assert(!encoding.stays);
    cr_assert_eq(sleeps, 4 * (PATIENCE_MS - 1));
}

Test(client_room, when_nothing_leaves_it_goes_on_without_and_does_not_wait_again)
{
    begin(3);
    departs(1);
    cr_assert_eq(next(), CHUNK);
    cr_assert(encoding.stays);
    cr_assert_eq(sleeps, 1 + PATIENCE_MS);
    const uint32_t before = turns;
    cr_assert_eq(next(), CHUNK);
    cr_assert(encoding.stays);
    cr_assert(turns == before && sleeps == 1 + PATIENCE_MS, "once is enough");
    client.session.members[0].in_flight = 1;
    cr_assert_eq(next(), CHUNK);
    cr_assert_not(encoding.stays, "they leave again");
    client.session.members[0].in_flight = 2;
    cr_assert_eq(next(), CHUNK);
    cr_assert_eq(sleeps, 1 + 2 * PATIENCE_MS, "so they are waited for again");
}

Test(client_room, where_bodies_are_fetched_nothing_is_waited_for)
{
    begin(2);
    portion = UINT64_MAX;
    cr_assert_eq(next(), CHUNK);
    cr_assert(encoding.stays && sleeps == 0);
}

Test(client_room, a_member_that_is_lost_meanwhile_and_a_client_that_has_failed_end_the_wait)
{
    begin(2);
    client.failed = GRADWEIR_ERR_LOST;
    cr_assert_eq(next(), CHUNK);
    cr_assert(encoding.stays && sleeps == 0);
    begin(2);
    client.session.members[0].state = MEMBER_AWAY;
    cr_assert_eq(next(), CHUNK);
    cr_assert(!encoding.stays && sleeps == 0, "nobody to wait for");
}

Test(client_room, the_last_chunk_is_what_is_left_and_a_piece_within_a_chunk_is_not_waited_for)
{
    begin(1);
    client.session.members[0].bytes = CHUNK * CHUNKS + 10;
    encoding.filled = CHUNK * CHUNKS;
    cr_assert_eq(next(), 10);
    client.session.members[0].in_flight = 2;
    encoding.filled = CHUNK + 1;
    cr_assert_eq(next(), CHUNK);
    cr_assert_eq(sleeps, 0);
}
