/* Questions: status, tune, what is known, and texts. */
#include "client/client_memory.h"

#include "common/checksum.h"
#include "common/clock.h"
#include "common/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_content(const struct gradweir_client *client, uint64_t what)
{
    (void)what;
    return content_whole(client->assembler);
}

gradweir_status client_fresh_content(struct gradweir_client *client)
{
    content_assembler_free(client->assembler);
    client->assembler = NULL;
    return content_assembler_new(CONTENT_BYTES_MAX, &client->assembler);
}

/* The job's object, and in it, first, what it cannot know: this client's own. */
static void put_status(const struct gradweir_client *client, char *text, size_t size)
{
    const size_t count = content_count(client->assembler);
    const char *json = (const char *)content_bytes(client->assembler);
    struct page page = {.text = text, .size = size};
    char memory[MEMORY_TEXT];
    client_memory_text(client, memory, sizeof memory);
    if (count < 2 || json[0] != '{') {
        page_put(&page, "%.*s", (int)count, json);
        return;
    }
    page_put(&page, "{\"this_client\":{\"memory_path\":\"%s\",\"memory\":",
             client_memory_path_name(client));
    page_quoted(&page, memory);
    page_put(&page, "}%s%.*s", json[1] == '}' ? "" : ",", (int)count - 1, json + 1);
}

static gradweir_status ask_status(struct gradweir_client *client, uint32_t timeout_ms, char *text,
                                  size_t size)
{
    TRY(client_fresh_content(client));
    control_send(client->control, CONTROL_SERVER,
                 &(struct message){.kind = MESSAGE_WANT,
                                   .epoch = client->session.epoch,
                                   .timeline = client->session.timeline,
                                   .want.content = CONTENT_STATUS});
    TRY(client_wait_until(client, has_content, 0,
                          deadline_after(clock_now_ns(), timeout_ms * CLOCK_MS)));
    put_status(client, text, size);
    return GRADWEIR_OK;
}

gradweir_status gradweir_status_json(gradweir_client *client, uint32_t timeout_ms, char *text,
                                     size_t size)
{
    TRY(client_given(client, "client"));
    TRY(client_given(text, "text"));
    if (size == 0)
        return fail(GRADWEIR_ERR_INVALID, "no room for the status");
    client_lock(client);
    const gradweir_status status = ask_status(client, timeout_ms, text, size);
    client_unlock(client);
    return status;
}

/* The coordinator asks the first worker that joins what the model is. */
void client_send_layout(struct gradweir_client *client)
{
    static uint8_t empty[1];
    const size_t size = client->model ? model_encoded_bytes(client->model) : 0;
    uint8_t *bytes = size ? malloc(size) : empty;
    if (!bytes || (size && model_encode(client->model, bytes, size) != GRADWEIR_OK))
        return;
    struct message page = {.kind = MESSAGE_PAGE, .epoch = 1, .timeline = 1};
    for (uint32_t i = 0; size && i < content_pages(size); i++) {
        content_page(CONTENT_LAYOUT, bytes, size, i, &page.page);
        control_send(client->control, CONTROL_SERVER, &page);
    }
    if (size)
        free(bytes);
}

/* A client that has failed, or has no connection, asks for nothing: what it sent would take effect
 * although it is told that it failed. */
static bool may_ask(const struct gradweir_client *client, uint64_t what)
{
    (void)what;
    return client->failed == GRADWEIR_OK && client->up;
}

static bool is_tuned(const struct gradweir_client *client, uint64_t what)
{
    (void)what;
    return client->tuned;
}

static gradweir_status tune(struct gradweir_client *client, const char *setting, const char *value,
                            uint32_t timeout_ms)
{
    struct message message = {.kind = MESSAGE_TUNE_ASK,
                              .epoch = client->session.epoch,
                              .timeline = client->session.timeline};
    if (strlen(setting) >= sizeof message.tune_ask.setting ||
        strlen(value) >= sizeof message.tune_ask.value)
        return fail(GRADWEIR_ERR_INVALID, "a setting and its value have at most 63 bytes");
    strcpy(message.tune_ask.setting, setting);
    strcpy(message.tune_ask.value, value);
    const uint64_t deadline_ns = deadline_after(clock_now_ns(), timeout_ms * CLOCK_MS);
    TRY(client_wait_until(client, may_ask, 0, deadline_ns));
    client->tuned = false;
    control_send(client->control, CONTROL_SERVER, &message);
    TRY(client_wait_until(client, is_tuned, 0, deadline_ns));
    if (client->tuned_answer.status != GRADWEIR_OK)
        return fail((gradweir_status)client->tuned_answer.status, "%s", client->tuned_answer.text);
    return GRADWEIR_OK;
}

gradweir_status gradweir_tune(gradweir_client *client, const char *setting, const char *value,
                              uint32_t timeout_ms)
{
    TRY(client_given(client, "client"));
    TRY(client_given(setting, "setting"));
    TRY(client_given(value, "value"));
    client_lock(client);
    const gradweir_status status = tune(client, setting, value, timeout_ms);
    client_unlock(client);
    return status;
}

gradweir_status gradweir_save(gradweir_client *client)
{
    (void)client;
    return fail(GRADWEIR_ERR_UNSUPPORTED, "this version writes no checkpoints yet");
}

uint64_t gradweir_version(const gradweir_client *client)
{
    return client ? client->version : 0;
}

uint64_t gradweir_newest(const gradweir_client *client)
{
    if (!client)
        return 0;
    client_lock(client);
    const uint64_t newest = client->session.newest;
    client_unlock(client);
    return newest;
}

uint64_t gradweir_elements(const gradweir_client *client)
{
    return client && client->model ? client->model->elements : 0;
}

/* The ring is the client's own and no part of what a caller sees. */
static gradweir_status give_parameters(const gradweir_client *client, float *parameters)
{
    union {
        const struct gradweir_client *is_const;
        struct gradweir_client *is_not;
    } same = {.is_const = client};
    return client_memory_give(same.is_not, parameters, client->received,
                              client->model->elements * sizeof(float));
}

gradweir_status gradweir_parameters(const gradweir_client *client, float *parameters,
                                    uint64_t elements)
{
    TRY(client_given(client, "client"));
    TRY(client_given(parameters, "parameters"));
    client_lock(client);
    gradweir_status status = GRADWEIR_OK;
    if (!client->pulled)
        status = fail(GRADWEIR_ERR_STATE, "no pull has been waited for, or one is under way");
    else if (elements != client->model->elements)
        status = fail(GRADWEIR_ERR_INVALID, "the model has %llu elements, not %llu",
                      (unsigned long long)client->model->elements, (unsigned long long)elements);
    else
        status = give_parameters(client, parameters);
    client_unlock(client);
    return status;
}

uint64_t gradweir_digest(const gradweir_client *client)
{
    if (!client)
        return 0;
    client_lock(client);
    uint64_t digest = 0;
    if (client->pulled) {
        const size_t blocks = checksum_blocks(client->received, client->model->elements,
                                              sizeof(float), client->model->block, client->digests);
        digest = checksum_combine(client->digests, blocks);
    }
    client_unlock(client);
    return digest;
}

static void hand_over(void *context, enum log_level level, const char *line)
{
    const struct gradweir_client *client = context;
    if (client->sink)
        client->sink(client->sink_context, (int)level, line);
}

void gradweir_log_to(gradweir_client *client, gradweir_log_sink sink, void *context)
{
    if (!client)
        return;
    client_lock(client);
    client->sink = sink;
    client->sink_context = context;
    log_init_sink(&client->log, LOG_INFO, hand_over, client);
    client_unlock(client);
}

const char *gradweir_status_text(gradweir_status status)
{
    switch (status) {
#define STATUS_TEXT(name, number, text)                                                            \
    case GRADWEIR_##name: return text;
        GRADWEIR_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

const char *gradweir_verdict_text(uint32_t verdict)
{
    return verdict_name(verdict);
}

const char *gradweir_last_error(void)
{
    return fail_reason();
}

void gradweir_describe(gradweir_client *client, char *text, size_t size)
{
    if (!client || !text) {
        if (text && size)
            text[0] = 0;
        return;
    }
    size_t used = 0;
    client_lock(client);
    if (size)
        text[0] = 0;
    if (client->memory && client->bound) {
        char memory[MEMORY_TEXT];
        client_memory_text(client, memory, sizeof memory);
        used += (size_t)snprintf(text, size, "memory: %s; ", memory);
    }
    for (uint32_t i = 0; client->bound && i < client->session.members_count && used < size; i++) {
        char one[TRANSPORT_TEXT_SIZE] = "not connected";
        if (client->peers[i])
            (void)transport_describe(client->transport, client->peers[i], one, sizeof one);
        used += (size_t)snprintf(text + used, size - used, "%sshard %u %s: %s", i ? "; " : "", i,
                                 client->session.members[i].where.address, one);
    }
    client_unlock(client);
}

const char *gradweir_library_version(void)
{
    return GRADWEIR_VERSION;
}
