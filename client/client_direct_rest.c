/* What pushes leave owed, where some are made in the GPU's memory and some (accumulated ones) in
 * the host's: each side has a rest of its own, and who begins a push brings over what the other
 * owes. */
#include "client/client_direct.h"

#include "client/client_memory.h"

#include <string.h>

static float *host_rest(const struct gradweir_client *client)
{
    return (float *)(void *)client->rest;
}

static uint64_t piece_at(const struct gradweir_client *client, uint64_t at)
{
    const uint64_t rest = client->model->elements - at, piece = client->memory->direct->piece;
    return rest < piece ? rest : piece;
}

/* Floats are what a push of float32 would have said: adding them is giving them back. */
static gradweir_status bring_there(const struct gradweir_client *client)
{
    const struct client_direct *direct = client->memory->direct;
    struct staging *staging = &client->memory->staging;
    for (uint64_t at = 0; at < client->model->elements; at += direct->piece) {
        const uint64_t n = piece_at(client, at);
        const struct device_give_back job = {.codec = ARITHMETIC_F32,
                                             .sent = direct->window,
                                             .n = (size_t)n,
                                             .rest = direct->rest + at};
        TRY(staging_write(staging, host_rest(client) + at, direct->window, n * sizeof(float)));
        TRY(staging_flush(staging));
        TRY(staging_give_back(staging, &job));
        TRY(staging_flush(staging));
    }
    memset(host_rest(client), 0, (size_t)client->model->elements * sizeof(float));
    return GRADWEIR_OK;
}

static void find_rest(void *context, uint64_t at, struct staging_stretch *stretch)
{
    const struct gradweir_client *client = context;
    *stretch = (struct staging_stretch){.from = (const uint8_t *)client->memory->direct->rest + at,
                                        .bytes = client->model->elements * sizeof(float) - at,
                                        .far = true};
}

static gradweir_status bring_here(struct gradweir_client *client)
{
    const struct client_direct *direct = client->memory->direct;
    struct staging *staging = &client->memory->staging;
    const struct staging_source source = {.find = find_rest, .context = client};
    const uint64_t elements = client->model->elements;
    TRY(staging_read_begin(staging, &source, elements * sizeof(float), NULL));
    float *to = host_rest(client);
    for (uint64_t some; (some = staging_room(staging)) > 0;) {
        const void *data;
        TRY(staging_read(staging, some, &data));
        const float *from = data;
        for (uint64_t i = 0; i < some / sizeof(float); i++)
            *to++ += from[i];
    }
    for (uint64_t at = 0; at < elements; at += direct->piece) {
        TRY(staging_copy(staging, direct->zeros, direct->rest + at,
                         piece_at(client, at) * sizeof(float)));
        TRY(staging_flush(staging));
    }
    return GRADWEIR_OK;
}

gradweir_status client_direct_owe(struct gradweir_client *client, bool there)
{
    struct client_direct *direct = client->memory->direct;
    if (!direct->rest)
        return GRADWEIR_OK;
    if (there && direct->owes_here)
        TRY(bring_there(client));
    if (!there && direct->owes_there)
        TRY(bring_here(client));
    direct->owes_there = there;
    direct->owes_here = !there;
    return GRADWEIR_OK;
}

/* It is given behind whatever the device has to do, and nobody waits: the buffer's next push comes
 * behind it. When the device is lost, the next push says so. */
bool client_direct_give_back(const struct gradweir_client *client, uint32_t buffer)
{
    struct client_direct *direct = client->memory ? client->memory->direct : NULL;
    if (direct && !direct->holds[buffer])
        direct->owes_here = true;
    if (!direct || !direct->holds[buffer])
        return false;
    const struct device_give_back job = {.codec = direct->codec,
                                         .sent = direct->bodies[buffer],
                                         .n = (size_t)client->model->elements,
                                         .rest = direct->rest};
    direct->owes_there = true;
    gradweir_status status = staging_give_back(&client->memory->staging, &job);
    while (status == GRADWEIR_ERR_FULL) {
        status = staging_wait_one(&client->memory->staging);
        if (status == GRADWEIR_OK)
            status = staging_give_back(&client->memory->staging, &job);
    }
    return true;
}
