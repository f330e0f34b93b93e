/* The device that holds the caller's arrays: opened, its ring taken, the path of floats decided. */
#include "client/client_memory.h"
#include "client/client_direct.h"

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
    client_direct_close(client);
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

/* Which path pushes take, into *why in words. Any array of the model's, or any pull's later, may be
 * far: else nothing is staged. */
static gradweir_status choose_path(struct gradweir_client *client, char *why, size_t size)
{
    const uint32_t wanted = client->options.memory_path;
    gradweir_status status = GRADWEIR_ERR_UNSUPPORTED;
    if (wanted == GRADWEIR_MEMORY_PATH_STAGING)
        snprintf(why, size, "options.memory_path says so");
    else
        status = client_direct_open(client);
    if (wanted == GRADWEIR_MEMORY_PATH_DIRECT && status != GRADWEIR_OK) {
        snprintf(why, size, "%s", fail_reason());
        return fail(status, "options.memory_path is direct: %s", why);
    }
    if (wanted == GRADWEIR_MEMORY_PATH_AUTO && status != GRADWEIR_OK)
        snprintf(why, size, "%s", fail_reason());
    return GRADWEIR_OK;
}

gradweir_status client_memory_path(struct gradweir_client *client)
{
    struct client_memory *memory = client->memory;
    char why[200] = "", text[MEMORY_TEXT];
    if (!memory)
        return GRADWEIR_OK;
    TRY(choose_path(client, why, sizeof why));
    const unsigned long long ring = memory->staging.slots * STAGING_SLOT >> 10;
    if (memory->direct)
        snprintf(memory->path, sizeof memory->path,
                 "directly: pushes are made and sent in its memory, pulls come by a pinned ring of "
                 "%llu KiB",
                 ring);
    else
        snprintf(memory->path, sizeof memory->path, "by staging, a pinned ring of %llu KiB; %.160s",
                 ring, why);
    if (!memory->direct)
        pin_buffers(client);
    client_memory_text(client, text, sizeof text);
    log_line(&client->log, LOG_INFO, "client", "memory: %s", text);
    return GRADWEIR_OK;
}

void client_memory_report(struct gradweir_client *client)
{
    if (!client->memory || client->numbers_count == REPORT_MAX)
        return;
    struct report_number *number = &client->numbers[client->numbers_count++];
    *number = (struct report_number){.value = 1};
    snprintf(number->name, sizeof number->name, "memory_%s", client_memory_path_name(client));
    client_send_report(client);
}

const char *client_memory_path_name(const struct gradweir_client *client)
{
    return !client->memory ? "host" : client->memory->direct ? "direct" : "staging";
}

void client_memory_text(const struct gradweir_client *client, char *text, size_t size)
{
    const struct client_memory *memory = client->memory;
    if (memory)
        snprintf(text, size, "%s %s", memory->name, memory->path);
    else
        snprintf(text, size, "host");
}

gradweir_status client_memory_whole(const struct gradweir_client *client)
{
    return client->memory ? staging_whole(&client->memory->staging) : GRADWEIR_OK;
}
