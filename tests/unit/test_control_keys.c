#include "common/clock.h"
#include "common/control_internal.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

struct keys {
    char public_key[41], secret_key[41];
};

static struct keys keys(void)
{
    struct keys made;
    cr_assert_eq(control_keys(made.public_key, made.secret_key), GRADWEIR_OK);
    return made;
}

/* A listener that knows two workers, and clients of one's own choice. */
struct house {
    struct control_context *context;
    struct keys server, first, second;
    const char *allowed[2], *names[2];
    struct control_options options;
    struct control *listener;
};

static void open_house(struct house *house)
{
    *house = (struct house){.server = keys(), .first = keys(), .second = keys()};
    house->allowed[0] = house->first.public_key;
    house->allowed[1] = house->second.public_key;
    house->names[0] = "worker-0";
    house->names[1] = "worker-1";
    house->options = control_defaults();
    house->options.peers_max = 8;
    house->options.secret_key = house->server.secret_key;
    house->options.allowed = house->allowed;
    house->options.allowed_names = house->names;
    house->options.allowed_count = 2;
    cr_assert_eq(control_context_new(&house->context), GRADWEIR_OK);
    cr_assert_eq(control_listen(house->context, &house->options, "0.0.0.0:0", "inproc://house",
                                &house->listener),
                 GRADWEIR_OK, "%s", fail_reason());
}

static void close_house(struct house *house)
{
    control_close(house->listener);
    control_context_free(house->context);
}

static struct control *come(struct house *house, const struct keys *mine, const char *server_key,
                            bool inproc)
{
    struct control_options options = control_defaults();
    char address[64];
    struct control *client;
    if (mine) {
        options.secret_key = mine->secret_key;
        options.server_key = server_key;
    }
    snprintf(address, sizeof address, "127.0.0.1%s",
             strrchr(control_address(house->listener), ':'));
    cr_assert_eq(
        control_connect(house->context, &options, inproc ? "inproc://house" : address, &client),
        GRADWEIR_OK, "%s", fail_reason());
    return client;
}

/* Until the client is let in (true) or turned away (false). */
static bool let_in(struct control *client)
{
    const uint64_t end = clock_now_ns() + 120 * CLOCK_SECOND;
    while (clock_now_ns() < end) {
        const struct control_event *event = control_poll(client);
        if (event && event->kind == CONTROL_UP)
            return true;
        if (control_refused(client))
            return false;
        poll(NULL, 0, 1);
    }
    cr_assert_fail("neither let in nor turned away");
    return false;
}

static const struct message hello = {
    .kind = MESSAGE_STEPPED, .epoch = 1, .timeline = 1, .stepped.version = 5};

static uint32_t heard(struct control *listener, struct control *client)
{
    const uint64_t end = clock_now_ns() + 120 * CLOCK_SECOND;
    cr_assert_eq(control_send(client, CONTROL_SERVER, &hello), GRADWEIR_OK);
    while (clock_now_ns() < end) {
        control_flush(client);
        const struct control_event *event = control_poll(listener);
        if (event && event->kind == CONTROL_MESSAGE)
            return event->peer;
        poll(NULL, 0, 1);
    }
    cr_assert_fail("nothing was heard");
    return 0;
}

Test(control_keys, a_known_key_comes_in_under_the_name_of_the_table)
{
    struct house house;
    open_house(&house);
    const struct keys *mine[] = {&house.second, &house.first};
    const char *names[] = {"worker-1", "worker-0"};
    for (int i = 0; i < 2; i++) {
        struct control *client = come(&house, mine[i], house.server.public_key, false);
        cr_assert(let_in(client));
        const uint32_t peer = heard(house.listener, client);
        cr_assert_str_eq(control_identity(house.listener, peer), names[i]);
        control_drop(house.listener, peer);
        cr_assert_str_eq(control_identity(house.listener, peer), "");
        control_close(client);
    }
    close_house(&house);
}

Test(control_keys, whoever_has_no_key_of_the_table_stays_out)
{
    struct house house;
    open_house(&house);
    const struct keys stranger = keys();
    struct control *client = come(&house, &stranger, house.server.public_key, false);
    cr_assert_not(let_in(client), "a stranger's key came in");
    control_close(client);
    client = come(&house, NULL, NULL, false);
    cr_assert_not(let_in(client), "a client without keys came in");
    control_close(client);
    struct control *good = come(&house, &house.first, house.server.public_key, false);
    cr_assert(let_in(good));
    control_close(good);
    close_house(&house);
}

Test(control_keys, a_peer_within_the_process_needs_none_and_has_no_name)
{
    struct house house;
    open_house(&house);
    struct control *client = come(&house, NULL, NULL, true);
    const uint32_t peer = heard(house.listener, client);
    cr_assert_str_eq(control_identity(house.listener, peer), "");
    control_close(client);
    close_house(&house);
}

/* The server comes back with a table that has our key: nobody restarts the client. */
Test(control_keys, a_client_that_was_turned_away_tries_again)
{
    struct house house;
    open_house(&house);
    const struct keys late = keys();
    struct control *client = come(&house, &late, house.server.public_key, false);
    cr_assert_not(let_in(client));
    char address[64];
    snprintf(address, sizeof address, "%s", control_address(house.listener));
    control_close(house.listener);
    house.allowed[1] = late.public_key;
    const uint64_t end = clock_now_ns() + 120 * CLOCK_SECOND;
    gradweir_status status;
    do /* ZeroMQ frees the port from a thread of its own */
        status = control_listen(house.context, &house.options, address, NULL, &house.listener);
    while (status == GRADWEIR_ERR_IO && clock_now_ns() < end);
    cr_assert_eq(status, GRADWEIR_OK, "%s", fail_reason());
    bool up = false;
    while (!up && clock_now_ns() < end) {
        const struct control_event *event = control_poll(client);
        up = event && event->kind == CONTROL_UP;
        poll(NULL, 0, 1);
    }
    cr_assert(up);
    cr_assert_not(control_refused(client));
    control_close(client);
    close_house(&house);
}

static void refuse(const struct control_options *options, const char *part)
{
    struct control_context *context;
    struct control *control;
    cr_assert_eq(control_context_new(&context), GRADWEIR_OK);
    cr_assert_eq(control_listen(context, options, "127.0.0.1:0", NULL, &control),
                 GRADWEIR_ERR_INVALID);
    cr_assert(strstr(fail_reason(), part), "%s", fail_reason());
    control_context_free(context);
}

Test(control_keys, a_table_that_makes_no_sense_is_refused_with_the_reason)
{
    struct house house;
    open_house(&house);
    struct control_options options = house.options;
    options.public_key = house.first.public_key;
    refuse(&options, "does not belong");
    options = house.options;
    options.secret_key = "short";
    refuse(&options, "secret key");
    house.names[1] = "";
    refuse(&house.options, "its name");
    house.names[1] = "worker-1";
    house.allowed[1] = "0123";
    refuse(&house.options, "the key of worker-1");
    house.allowed[1] = house.allowed[0];
    refuse(&house.options, "the same key");
    close_house(&house);
}

/* CURVE without a handler encrypts and lets everybody in: libzmq's default. */
Test(control_keys, the_trial_at_start_fails_where_a_stranger_comes_in)
{
    const struct keys server = keys();
    void *zmq = zmq_ctx_new();
    void *open_door = zmq_socket(zmq, ZMQ_ROUTER);
    char endpoint[64];
    size_t size = sizeof endpoint;
    cr_assert_eq(zmq_setsockopt(open_door, ZMQ_CURVE_SERVER, &(int){1}, sizeof(int)), 0);
    cr_assert_eq(zmq_setsockopt(open_door, ZMQ_CURVE_SECRETKEY, server.secret_key, 41), 0);
    cr_assert_eq(zmq_bind(open_door, "tcp://127.0.0.1:*"), 0);
    cr_assert_eq(zmq_getsockopt(open_door, ZMQ_LAST_ENDPOINT, endpoint, &size), 0);
    cr_assert_eq(control_zap_test(zmq, endpoint, server.public_key), GRADWEIR_ERR_STATE);
    cr_assert(strstr(fail_reason(), "lets a stranger's key in"), "%s", fail_reason());
    zmq_close(open_door);
    zmq_ctx_term(zmq);
}
