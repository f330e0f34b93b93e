/* The device that holds the caller's arrays: opened, its ring taken, the path of floats decided. */
#include "client/client_memory.h"

#include <stdio.h>
#include <stdlib.h>

gradweir_status client_memory_open_with(struct gradweir_client *client, const struct device *device)
{
    const uint32_t wanted = client->options.memory;
    if (wanted == GRADWEIR_MEMORY_HOST || (wanted == GRADWEIR_MEMORY_AUTO && !device))
        return GRADWEIR_OK;
    if (!device)
        return fail(GRADWEIR_ERR_UNSUPPORTED,
                    "options.memory is cuda, but this library was built without CUDA "
                    "(-DGRADWEIR_CUDA=ON needs the toolkit)");
    struct client_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a client's tables");
    const gradweir_status status =
        device->open(&(struct device_options){.ordinal = client->options.gpu}, &memory->state);
    if (status == GRADWEIR_ERR_UNSUPPORTED && wanted == GRADWEIR_MEMORY_AUTO) {
        log_line(&client->log, LOG_INFO, "client", "memory: host (%s)", fail_reason());
        free(memory);
        return GRADWEIR_OK;
    }
    if (status != GRADWEIR_OK) {
        free(memory);
        return status;
    }
    struct device_info info;
    device->info(memory->state, &info);
    snprintf(memory->name, sizeof memory->name, "%s", info.text);
    memory->device = device;
    client->memory = memory;
    return GRADWEIR_OK;
}

gradweir_status client_memory_open(struct gradweir_client *client)
{
    return client_memory_open_with(client, device_find("cuda"));
}

void client_memory_unbind(struct gradweir_client *client)
{
    struct client_memory *memory = client->memory;
    if (!memory)
        return;
    staging_deinit(&memory->staging);
    for (uint32_t i = 0; i < OUTSTANDING_MAX; i++) {
        if (memory->pinned[i])
            memory->device->unpin(memory->state, client->buffers[i], memory->pinned_bytes);
        memory->pinned[i] = false;
    }
    client_body_spare_free(client, &memory->landing);
    free(memory->far);
    memory->far = NULL;
}

void client_memory_close(struct gradweir_client *client)
{
    struct client_memory *memory = client->memory;
    client_memory_look_no_more(client);
    if (!memory)
        return;
    client_memory_unbind(client);
    memory->device->close(memory->state);
    free(memory);
    client->memory = NULL;
}

/* Send buffers are pinned, so that float32 goes into them without a stop in the ring. Where the
 * machine has not enough memory to pin, it stops there. */
static void pin_buffers(struct gradweir_client *client)
{
    struct client_memory *memory = client->memory;
    memory->pinned_bytes = ((size_t)client->body_bytes + 4095) / 4096 * 4096;
    for (uint32_t i = 0; i < client->options.outstanding; i++)
        if (client->buffers[i] && client->session.codec == ARITHMETIC_F32 && !client->parts)
            memory->pinned[i] = memory->device->pin(memory->state, client->buffers[i],
                                                    memory->pinned_bytes) == GRADWEIR_OK;
}

/* Any array of the model's, or any pull's later, may be far: else nothing is staged. */
gradweir_status client_memory_path(struct gradweir_client *client)
{
    struct client_memory *memory = client->memory;
    if (!memory)
        return GRADWEIR_OK;
    const bool direct = client->options.memory_path == GRADWEIR_MEMORY_PATH_DIRECT;
    const gradweir_status knows = transport_knows(client->transport, TRANSPORT_MEMORY_CUDA);
    if (direct && knows != GRADWEIR_OK)
        return knows; /* the transport has said why */
    if (direct)
        return fail(GRADWEIR_ERR_UNSUPPORTED,
                    "options.memory_path is direct: the transport knows CUDA memory, but this "
                    "version encodes and checks floats in host memory only; say staging or auto");
    pin_buffers(client);
    snprintf(memory->path, sizeof memory->path, "staging, a pinned ring of %llu KiB; %.120s",
             (unsigned long long)(memory->staging.slots * STAGING_SLOT >> 10),
             knows == GRADWEIR_OK ? "the transport knows CUDA memory" : fail_reason());
    char text[320];
    client_memory_text(client, text, sizeof text);
    log_line(&client->log, LOG_INFO, "client", "memory: %s", text);
    return GRADWEIR_OK;
}

void client_memory_report(struct gradweir_client *client)
{
    if (!client->memory || client->numbers_count == REPORT_MAX)
        return;
    client->numbers[client->numbers_count++] =
        (struct report_number){.name = "memory_staging", .value = 1};
    client_send_report(client);
}

const char *client_memory_path_name(const struct gradweir_client *client)
{
    return client->memory ? "staging" : "host";
}

void client_memory_text(const struct gradweir_client *client, char *text, size_t size)
{
    const struct client_memory *memory = client->memory;
    if (memory)
        snprintf(text, size, "%s by %s", memory->name, memory->path);
    else
        snprintf(text, size, "host");
}

gradweir_status client_memory_whole(const struct gradweir_client *client)
{
    return client->memory ? staging_whole(&client->memory->staging) : GRADWEIR_OK;
}
