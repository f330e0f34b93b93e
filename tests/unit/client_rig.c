#include "tests/unit/client_rig.h"

#include "client/client_feedback.h"
#include "common/transport_memory.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Odd sizes: a block and a slot are never whole, but the first two are four blocks. The third is
 * frozen and has no gradient. */
static const struct {
    const char *name;
    uint64_t rows, columns;
    uint32_t kind;
} shapes[CLIENT_RIG_TENSORS] = {
    {"scalar", 0, 0, GRADWEIR_PARAMETER},     {"large", 513, 511, GRADWEIR_PARAMETER},
    {"frozen", 70001, 1, GRADWEIR_PARAMETER}, {"counts", 3, 1, GRADWEIR_MOMENTS},
    {"small", 3, 5, GRADWEIR_PARAMETER},      {"middle", 251, 397, GRADWEIR_PARAMETER},
    {"scales", 40003, 1, GRADWEIR_MOMENTS},   {"last", 129, 1, GRADWEIR_PARAMETER}};

enum { FROZEN = 2 };

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *seed >> 33;
}

static float chance(uint64_t *seed)
{
    return ((float)(next(seed) % 2000001) - 1000000.0f) / 3.0e6f;
}

static uint64_t elements_of(size_t i)
{
    return shapes[i].rows ? shapes[i].rows * shapes[i].columns : 1;
}

uint64_t client_rig_bytes(const struct client_rig *rig, size_t array)
{
    return array % 2 ? rig->parameter_bytes[array / 2] : rig->gradient_bytes[array / 2];
}

static void *array_of(const struct client_rig *rig, size_t array)
{
    union {
        const void *is_const;
        void *is_not;
    } at = {.is_const =
                array % 2 ? rig->tensors[array / 2].parameters : rig->tensors[array / 2].gradient};
    return at.is_not;
}

void client_rig_put(struct client_rig *rig, size_t array, const void *from)
{
    void *to = array_of(rig, array);
    if (to && rig->far[array])
        device_far_put(to, from, (size_t)client_rig_bytes(rig, array));
    else if (to)
        memcpy(to, from, (size_t)client_rig_bytes(rig, array));
}

void client_rig_get(const struct client_rig *rig, size_t array, void *to)
{
    const void *from = array_of(rig, array);
    cr_assert(from);
    if (rig->far[array])
        device_far_get(from, to, (size_t)client_rig_bytes(rig, array));
    else
        memcpy(to, from, (size_t)client_rig_bytes(rig, array));
}

static void fill(uint8_t *to, uint64_t bytes, uint32_t kind, uint64_t *seed)
{
    struct moments *moments = (struct moments *)(void *)to;
    float *floats = (float *)(void *)to;
    if (kind == GRADWEIR_PARAMETER)
        for (uint64_t i = 0; i < bytes / sizeof *floats; i++)
            floats[i] = chance(seed);
    else
        for (uint64_t i = 0; i < bytes / sizeof *moments; i++)
            moments[i] = (struct moments){
                .count = (double)(1 + next(seed) % 9), .mean = chance(seed), .m2 = 0.5};
}

static void fill_arrays(struct client_rig *rig, size_t first, uint64_t seed, uint64_t spoiled)
{
    for (size_t array = first; array < 2 * CLIENT_RIG_TENSORS; array += 2) {
        const uint64_t bytes = client_rig_bytes(rig, array);
        uint8_t *host = malloc((size_t)bytes + 8);
        cr_assert(host);
        fill(host, bytes, shapes[array / 2].kind, &seed);
        if (array / 2 == 1 && spoiled != UINT64_MAX)
            ((float *)(void *)host)[spoiled] = INFINITY;
        client_rig_put(rig, array, host);
        free(host);
    }
}

void client_rig_gradient(struct client_rig *rig, uint64_t seed, uint64_t spoiled)
{
    fill_arrays(rig, 0, seed, spoiled);
}

static void *new_array(struct client_rig *rig, size_t array, const struct client_rig_wish *wish)
{
    uint64_t mixed = wish->seed * 31 + array;
    (void)next(&mixed);
    const size_t bytes = (size_t)client_rig_bytes(rig, array);
    rig->far[array] =
        wish->place == CLIENT_RIG_FAR || (wish->place == CLIENT_RIG_MIXED && next(&mixed) % 2);
    return rig->far[array] ? device_far_new(bytes, 0) : calloc(1, bytes);
}

static void new_tensors(struct client_rig *rig, const struct client_rig_wish *wish)
{
    for (size_t i = 0; i < CLIENT_RIG_TENSORS; i++) {
        gradweir_tensor *tensor = &rig->tensors[i];
        const uint64_t each =
            shapes[i].kind == GRADWEIR_MOMENTS ? sizeof(struct moments) : sizeof(float);
        *tensor = (gradweir_tensor){.name = shapes[i].name, .kind = shapes[i].kind};
        tensor->dimensions = shapes[i].rows ? 2 : 0;
        tensor->shape[0] = shapes[i].rows;
        tensor->shape[1] = shapes[i].columns;
        tensor->group = i == FROZEN ? 1 : 0;
        rig->parameter_bytes[i] = rig->gradient_bytes[i] = elements_of(i) * each;
        if (wish->ranks && i == 1) /* columns 100 to 299 */
            rig->gradient_bytes[i] = 513 * 200 * each;
        tensor->parameters = new_array(rig, 2 * i + 1, wish);
        if (i != FROZEN)
            tensor->gradient = new_array(rig, 2 * i, wish);
    }
}

void client_rig_new(struct client_rig *rig, const struct client_rig_wish *wish)
{
    const gradweir_group frozen = {.learning_rate_scale = 1, .frozen = 1};
    uint32_t number;
    *rig = (struct client_rig){.client = calloc(1, sizeof *rig->client)};
    struct gradweir_client *client = rig->client;
    cr_assert(client);
    gradweir_options_default(&client->options);
    client->options.feedback = wish->feedback;
    client->options.memory =
        wish->place == CLIENT_RIG_HOST ? GRADWEIR_MEMORY_HOST : GRADWEIR_MEMORY_AUTO;
    client->options.memory_path = wish->path;
    client->options.staging_bytes = UINT64_C(3) << 19;
    client->options.ranks = wish->ranks ? wish->ranks : 1;
    client->events_fd = -1;
    log_init(&client->log, LOG_ERROR, 2);
    pthread_mutex_init(&client->lock, NULL);
    client->groups[0] = (gradweir_group){1, -1, -1, -1, 0};
    client->groups_count = 1;
    client->arithmetic = arithmetic_choose(NULL);
    client->session.codec = wish->codec;
    client->session.magnitude_max = 1e30;
    client->session.chunk_bytes = 1 << 20;
    cr_assert_eq(gradweir_group_add(client, &frozen, &number), GRADWEIR_OK);
    new_tensors(rig, wish);
    fill_arrays(rig, 1, wish->seed + 1000, UINT64_MAX);
    client_rig_gradient(rig, wish->seed, UINT64_MAX);
    if (wish->ranks)
        cr_assert_eq(gradweir_part(client, 1, 1, 100, 200), GRADWEIR_OK);
}

gradweir_status client_rig_bind(struct client_rig *rig, const struct client_rig_wish *wish)
{
    struct gradweir_client *client = rig->client;
    struct session_options options = {.role = GRADWEIR_WORKER};
    struct transport_settings settings = transport_defaults();
    settings.backend = "memory";
    TRY(client_memory_open_with(client, &device_far));
    TRY(client_model_build(client, rig->tensors, CLIENT_RIG_TENSORS));
    TRY(client_parts_bind(client, &options));
    TRY(client_body_room(client));
    TRY(client_memory_bind(client));
    cr_assert_eq(transport_memory_hub_new(0, &rig->hub), GRADWEIR_OK);
    settings.hub = rig->hub;
    if (wish->known)
        transport_memory_know_cuda(rig->hub, device_far_reach);
    TRY(transport_open(&settings, &client->transport));
    TRY(client_body_take(client));
    TRY(client_feedback_take(client));
    TRY(client_memory_path(client));
    client->bound = client->based = true;
    return GRADWEIR_OK;
}

void client_rig_make(struct client_rig *rig, const struct client_rig_wish *wish)
{
    client_rig_new(rig, wish);
    cr_assert_eq(client_rig_bind(rig, wish), GRADWEIR_OK, "%s", fail_reason());
}

void client_rig_free(struct client_rig *rig)
{
    struct gradweir_client *client = rig->client;
    transport_close(client->transport);
    client_memory_close(client);
    client_pull_free(client);
    client_body_free(client);
    client_parts_free(client);
    model_free(client->model);
    transport_memory_hub_free(rig->hub);
    free(client->tensors);
    pthread_mutex_destroy(&client->lock);
    for (size_t array = 0; array < 2 * CLIENT_RIG_TENSORS; array++) {
        if (rig->far[array])
            device_far_delete(array_of(rig, array));
        else
            free(array_of(rig, array));
    }
    free(client);
    cr_expect_eq(device_far_seen.pins, device_far_seen.unpins);
    cr_expect_eq(device_far_seen.opened, device_far_seen.closed);
    cr_expect_eq(device_far_seen.unpinned, 0u, "a copy did not go by pinned memory");
}

void client_rig_encode(struct client_rig *rig, enum client_source source, uint64_t piece,
                       struct client_encoding *encoding)
{
    cr_assert_eq(client_encode_begin(encoding, rig->client, source, 0), GRADWEIR_OK, "%s",
                 fail_reason());
    while (client_encode_more(encoding, piece))
        ;
    cr_assert_eq(encoding->status, GRADWEIR_OK, "%s", fail_reason());
}

void client_twins_make(struct client_twins *twins, const struct client_rig_wish *wish)
{
    struct client_rig_wish host = *wish;
    device_far_reset();
    device_far_faults.polls_idle = wish->seed % 3;
    client_rig_make(&twins->far, wish);
    host.place = CLIENT_RIG_HOST;
    host.path = GRADWEIR_MEMORY_PATH_AUTO;
    client_rig_make(&twins->host, &host);
}

void client_twins_free(struct client_twins *twins)
{
    client_rig_free(&twins->far);
    client_rig_free(&twins->host);
}

void client_twins_encode(struct client_twins *twins, enum client_source source, uint64_t piece,
                         struct client_encoding *far, struct client_encoding *host)
{
    client_rig_encode(&twins->far, source, piece, far);
    client_rig_encode(&twins->host, source, piece + 300000, host);
    cr_assert_eq(far->filled, host->filled);
    cr_expect_eq(far->digest, host->digest, "digest");
    cr_expect_eq(memcmp(&far->norm, &host->norm, sizeof far->norm), 0, "norm %a, %a", far->norm,
                 host->norm);
    cr_expect_eq(memcmp(twins->far.client->sums[0].crcs, twins->host.client->sums[0].crcs,
                        ((size_t)twins->far.client->model->blocks + 1) * sizeof(uint32_t)),
                 0, "checksums");
}
