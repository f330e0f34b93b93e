/* Opening, binding, offering, closing. */
#include "client/client_feedback.h"
#include "client/client_memory.h"

#include "common/clock.h"
#include "common/random.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

gradweir_status client_copy_text(char *to, size_t size, const char *from, const char *what)
{
    if (!from)
        from = "";
    if (strlen(from) >= size)
        return fail(GRADWEIR_ERR_INVALID, "%s has %zu bytes, at most %zu are allowed", what,
                    strlen(from), size - 1);
    strcpy(to, from);
    return GRADWEIR_OK;
}

/* Up, or turned away so that waiting changes nothing. */
static bool is_settled(const struct gradweir_client *client, uint64_t what)
{
    (void)what;
    return client->up || control_refused_surely(client->control);
}

static gradweir_status connect_control(struct gradweir_client *client)
{
    struct control_options control = control_defaults();
    struct key_table *keys = NULL;
    control.insecure = client->options.insecure != 0;
    TRY(control_context_new(&client->context));
    gradweir_status status = client_keys(client, &control, &keys);
    if (status == GRADWEIR_OK)
        status = control_connect(client->context, &control, client->address, &client->control);
    keys_free(keys);
    TRY(status);
    TRY(client_wait_until(
        client, is_settled, 0,
        deadline_after(clock_now_ns(), client->options.connect_timeout_ms * CLOCK_MS)));
    return client->up ? GRADWEIR_OK
                      : fail(GRADWEIR_ERR_REFUSED, "%s turns us away: %s", client->address,
                             control_refused(client->control));
}

static gradweir_status take_tables(struct gradweir_client *client)
{
    client->takes_max = 1024;
    client->takes = calloc(client->takes_max + 1, sizeof *client->takes);
    client->actions.items = calloc(SESSION_ACTIONS_MAX, sizeof *client->actions.items);
    if (!client->takes || !client->actions.items)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a client's tables");
    for (uint32_t i = 0; i < client->takes_max; i++)
        client->takes[i].next_free = i + 1;
    client->groups[0] = (gradweir_group){1, -1, -1, -1, 0};
    client->groups_count = 1;
    client->arithmetic = arithmetic_choose(NULL);
    return content_assembler_new(CONTENT_BYTES_MAX, &client->assembler);
}

static gradweir_status open_all(struct gradweir_client *client, const gradweir_options *options)
{
    TRY(client_copy_text(client->address, sizeof client->address, options->address,
                         "options.address"));
    TRY(client_copy_text(client->identity, sizeof client->identity, options->identity,
                         "options.identity"));
    TRY(client_copy_text(client->lanes, sizeof client->lanes, options->transport,
                         "options.transport"));
    TRY(client_copy_text(client->devices, sizeof client->devices, options->devices,
                         "options.devices"));
    TRY(client_copy_text(client->group_text, sizeof client->group_text, options->group,
                         "options.group"));
    TRY(take_tables(client));
    TRY(client_memory_open(client)); /* before anybody waits for a server */
    return connect_control(client);
}

gradweir_status gradweir_open(const gradweir_options *options, gradweir_client **client)
{
    gradweir_options whole;
    TRY(client_given(options, "options"));
    TRY(client_given(client, "client (where it goes)"));
    TRY(client_options(options, &whole));
    struct gradweir_client *made = calloc(1, sizeof *made);
    if (!made)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a client");
    made->options = whole;
    made->events_fd = -1;
    log_init(&made->log, LOG_WARN, 2);
    pthread_mutex_init(&made->lock, NULL);
    idle_init(&made->idle, UINT64_MAX);
    const gradweir_status status = open_all(made, &whole);
    if (status != GRADWEIR_OK) {
        gradweir_close(made);
        return status;
    }
    *client = made;
    return GRADWEIR_OK;
}

static bool has_left(const struct gradweir_client *client, uint64_t what)
{
    (void)what;
    return client->left;
}

void gradweir_close(gradweir_client *client)
{
    if (!client)
        return;
    atomic_store(&client->helper_stop, true);
    if (client->helper_started)
        pthread_join(client->helper, NULL);
    if (client->joined && client->up && client->failed == GRADWEIR_OK) {
        client_event(client, &(struct session_event){.kind = SESSION_BYE,
                                                     .now_ns = (int64_t)clock_now_ns()});
        (void)client_wait_until(client, has_left, 0,
                                deadline_after(clock_now_ns(), 2 * CLOCK_SECOND));
    }
    transport_close(client->transport);
    control_close(client->control);
    control_context_free(client->context);
    content_assembler_free(client->assembler);
    client_memory_close(client);
    client_pull_free(client);
    client_body_free(client);
    client_parts_free(client);
    model_free(client->model);
    free(client->tensors);
    free(client->takes);
    outbox_deinit(&client->outbox);
    free(client->actions.items);
    if (client->events_fd >= 0)
        close(client->events_fd);
    pthread_mutex_destroy(&client->lock);
    idle_deinit(&client->idle);
    free(client);
}

static bool has_layout(const struct gradweir_client *client, uint64_t what)
{
    (void)what;
    return content_whole(client->assembler);
}

/* A reader without a model of its own asks until the job has one. */
static gradweir_status fetch_model(struct gradweir_client *client, uint64_t deadline_ns)
{
    gradweir_status status;
    TRY(client_fresh_content(client)); /* a status may lie there */
    do {
        const uint64_t soon = deadline_after(clock_now_ns(), 200 * CLOCK_MS);
        control_send(
            client->control, CONTROL_SERVER,
            &(struct message){
                .kind = MESSAGE_WANT, .epoch = 1, .timeline = 1, .want.content = CONTENT_LAYOUT});
        status = client_wait_until(client, has_layout, 0, soon < deadline_ns ? soon : deadline_ns);
    } while (status == GRADWEIR_ERR_TIMEOUT && !deadline_passed(clock_now_ns(), deadline_ns));
    if (status == GRADWEIR_ERR_TIMEOUT)
        return fail(status, "%s: the job has no model yet: no worker has bound one",
                    client->address);
    TRY(status);
    return model_decode(content_bytes(client->assembler), content_count(client->assembler),
                        &client->model);
}

/* The coordinator sends its layout before it says no: name the first difference. */
static gradweir_status explain_mismatch(struct gradweir_client *client, gradweir_status status)
{
    struct model *theirs;
    char text[512];
    if (status != GRADWEIR_ERR_MISMATCH || !content_whole(client->assembler) ||
        model_decode(content_bytes(client->assembler), content_count(client->assembler), &theirs) !=
            GRADWEIR_OK)
        return status;
    const bool differ = model_difference(client->model, theirs, text, sizeof text);
    model_free(theirs);
    return differ ? fail(status, "the model differs from the servers': %s", text) : status;
}

static gradweir_status open_transport(struct gradweir_client *client)
{
    struct transport_settings settings = transport_defaults();
    settings.lanes = client->lanes;
    settings.devices = client->devices;
    settings.peers_max = MEMBERS_MAX;
    settings.along_max = BODIES_ALONG;
    settings.at_once = client_at_once;
    settings.at_once_context = client;
    if (strncmp(client->address, "127.", 4) != 0 && strncmp(client->address, "localhost", 9) != 0)
        settings.bind_address = "0.0.0.0:0";
    TRY(transport_open(&settings, &client->transport));
    return client_outbox(client);
}

static gradweir_status start_session(struct gradweir_client *client)
{
    struct session_options options = {.role = client->options.role,
                                      .outstanding = client->options.outstanding,
                                      .layout_hash = client->model->hash,
                                      .elements = client->model->elements,
                                      .moments = client->model->moments,
                                      .model = client->model,
                                      .resend_ns = (int64_t)(2 * CLOCK_SECOND),
                                      .retry_ns = (int64_t)(5 * CLOCK_MS)};
    memcpy(options.identity, client->identity, sizeof options.identity);
    TRY(random_entropy(options.nonce, sizeof options.nonce));
    TRY(client_parts_bind(client, &options));
    TRY(client_body_room(client));
    TRY(client_memory_bind(client));
    TRY(open_transport(client));
    TRY(client_body_take(client));
    session_init(&client->session, &options);
    client->bound = true;
    client_event(client,
                 &(struct session_event){.kind = SESSION_UP, .now_ns = (int64_t)clock_now_ns()});
    return GRADWEIR_OK;
}

static bool is_in(const struct gradweir_client *client, uint64_t what)
{
    (void)what;
    if (!client->joined)
        return false;
    for (uint32_t i = 0; i < client->session.members_count; i++)
        if (client->session.members[i].state != MEMBER_OPEN)
            return false;
    return true;
}

static void *help(void *context)
{
    struct gradweir_client *client = context;
    while (!atomic_load(&client->helper_stop)) {
        client_lock(client);
        const bool any = client_turn(client);
        client_unlock(client);
        if (!any)
            poll(NULL, 0, 1);
    }
    return NULL;
}

static gradweir_status bind_all(struct gradweir_client *client, const gradweir_tensor *tensors,
                                size_t count)
{
    const uint64_t deadline_ns =
        deadline_after(clock_now_ns(), client->options.connect_timeout_ms * CLOCK_MS);
    if (client->bound)
        return fail(GRADWEIR_ERR_STATE, "bind is called once");
    if (count == 0 && client->options.role != GRADWEIR_READER)
        return fail(GRADWEIR_ERR_INVALID, "a worker binds at least one tensor");
    TRY(count ? client_model_build(client, tensors, count) : fetch_model(client, deadline_ns));
    TRY(start_session(client));
    TRY(explain_mismatch(client, client_wait_until(client, is_in, 0, deadline_ns)));
    TRY(client_feedback_take(client));
    TRY(client_memory_path(client));
    client_memory_report(client);
    if (client->options.progress == GRADWEIR_PROGRESS_THREAD) {
        if (pthread_create(&client->helper, NULL, help, client) != 0)
            return fail(GRADWEIR_ERR_IO, "no helper thread");
        client->helper_started = true;
    }
    return GRADWEIR_OK;
}

/* What a bind that failed before the session began has taken, so that it may be tried again. */
static void unbind(struct gradweir_client *client)
{
    transport_close(client->transport);
    client->transport = NULL;
    outbox_deinit(&client->outbox);
    client_memory_unbind(client);
    client_body_free(client);
    model_free(client->model);
    client->model = NULL;
    free(client->tensors);
    client->tensors = NULL;
    client->tensors_count = 0;
}

gradweir_status gradweir_bind(gradweir_client *client, const gradweir_tensor *tensors, size_t count)
{
    TRY(client_given(client, "client"));
    if (count)
        TRY(client_given(tensors, "tensors"));
    client_lock(client);
    const gradweir_status status = bind_all(client, tensors, count);
    if (!client->bound)
        unbind(client);
    client_unlock(client);
    return status;
}

/* One try; AGAIN when it was refused for no fault of its own and nobody else was first either. */
static gradweir_status offer_once(struct gradweir_client *client, uint32_t timeout_ms)
{
    gradweir_ticket ticket;
    gradweir_receipt receipt;
    const struct session_push_request wanted = {.purpose = PURPOSE_FIRST, .samples = 1};
    TRY(client_push(client, &wanted, &ticket));
    TRY(client_wait_ticket(client, ticket, timeout_ms, &receipt));
    switch (receipt.verdict) {
    case GRADWEIR_ADMITTED: return GRADWEIR_OK;
    case GRADWEIR_CANCELLED: /* another worker's are first: a JOIN tells */
    case GRADWEIR_QUEUE_FULL: return GRADWEIR_ERR_AGAIN;
    case GRADWEIR_NOT_FINITE:
        return fail(GRADWEIR_ERR_INVALID, "the first parameters are not finite: tensor %s",
                    receipt.tensor);
    default:
        return fail(GRADWEIR_ERR_REFUSED, "the first parameters were refused: %s",
                    gradweir_verdict_text(receipt.verdict));
    }
}

static uint32_t rest_ms(uint64_t deadline_ns)
{
    const int rest = deadline_poll_ms(clock_now_ns(), deadline_ns);
    return rest > 0 ? (uint32_t)rest : 0;
}

static bool has_first(const struct gradweir_client *client, uint64_t what)
{
    (void)what;
    return client->session.first;
}

static gradweir_status offer(struct gradweir_client *client, uint32_t timeout_ms)
{
    const uint64_t deadline_ns = deadline_after(clock_now_ns(), timeout_ms * CLOCK_MS);
    if (!client->bound)
        return fail(GRADWEIR_ERR_STATE, "offer comes after bind");
    while (!client->session.first) {
        const gradweir_status status = offer_once(client, rest_ms(deadline_ns));
        if (status != GRADWEIR_ERR_AGAIN)
            return status;
        if (deadline_passed(clock_now_ns(), deadline_ns))
            return fail(GRADWEIR_ERR_TIMEOUT, "%s: no first parameters were taken in time",
                        client->address);
        const gradweir_status waited =
            client_wait_until(client, has_first, 0, deadline_after(clock_now_ns(), 100 * CLOCK_MS));
        if (waited != GRADWEIR_OK && waited != GRADWEIR_ERR_TIMEOUT)
            return waited;
    }
    return GRADWEIR_OK;
}

gradweir_status gradweir_offer(gradweir_client *client, uint32_t timeout_ms)
{
    TRY(client_given(client, "client"));
    client_lock(client);
    const gradweir_status status = offer(client, timeout_ms);
    client_unlock(client);
    return status;
}
