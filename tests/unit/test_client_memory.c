/* Gradients out of a device's memory and parameters into it: the same bytes as from host memory,
 * whatever codec, source and size, and nobody but the device's copies touches what is far. */
#include "client/client_feedback.h"
#include "tests/unit/client_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void expect_equal(const struct client_twins *twins, const struct client_encoding *a,
                         const struct client_encoding *b, const char *what)
{
    const struct gradweir_client *far = twins->far.client, *host = twins->host.client;
    const size_t elements = (size_t)far->model->elements;
    cr_expect_eq(memcmp(far->buffers[0], host->buffers[0], (size_t)a->filled), 0, "%s: bytes",
                 what);
    cr_expect_eq(a->refused, b->refused, "%s", what);
    cr_assert_eq(!far->rest, !host->rest);
    if (far->rest)
        cr_expect_eq(memcmp(far->rest, host->rest, elements * sizeof(float)), 0, "%s: rest", what);
}

static void push_both(struct client_twins *twins, enum client_source source, uint64_t piece,
                      const char *what)
{
    struct client_encoding a, b;
    client_twins_encode(twins, source, piece, &a, &b);
    cr_expect(!b.streams);
    expect_equal(twins, &a, &b, what);
}

Test(client_memory, a_push_has_the_bytes_of_one_from_host_memory_in_every_codec)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        const enum arithmetic_codec codec = (enum arithmetic_codec)(seed % 4);
        struct client_twins twins;
        client_twins_make(&twins,
                          &(struct client_rig_wish){
                              .place = seed % 3 ? CLIENT_RIG_FAR : CLIENT_RIG_MIXED,
                              .codec = codec,
                              .feedback = seed < 5 ? GRADWEIR_FEEDBACK_AUTO : GRADWEIR_FEEDBACK_ON,
                              .seed = seed});
        push_both(&twins, CLIENT_GRADIENT, 1 + seed * 100000, "gradient");
        for (uint64_t again = 0; again < 2; again++) { /* with a rest */
            client_rig_gradient(&twins.far, seed + again + 50, UINT64_MAX);
            client_rig_gradient(&twins.host, seed + again + 50, UINT64_MAX);
            push_both(&twins, CLIENT_GRADIENT, UINT64_MAX / 2, "another gradient");
        }
        push_both(&twins, CLIENT_PARAMETERS, 500000, "parameters");
        cr_expect(device_far_seen.bytes > 0);
        client_twins_free(&twins);
    }
}

Test(client_memory, what_is_refused_leaves_the_rest_that_it_leaves_from_host_memory)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct client_twins twins;
        client_twins_make(&twins, &(struct client_rig_wish){.place = CLIENT_RIG_FAR,
                                                            .codec = ARITHMETIC_INT8,
                                                            .seed = seed});
        push_both(&twins, CLIENT_GRADIENT, 100000, "first");
        client_rig_gradient(&twins.far, seed, seed * 80000);
        client_rig_gradient(&twins.host, seed, seed * 80000);
        push_both(&twins, CLIENT_GRADIENT, 100000, "not finite");
        client_rig_gradient(&twins.far, seed + 9, UINT64_MAX);
        client_rig_gradient(&twins.host, seed + 9, UINT64_MAX);
        push_both(&twins, CLIENT_GRADIENT, 100000, "after it");
        client_twins_free(&twins);
    }
}

Test(client_memory, float32_goes_straight_into_a_pinned_send_buffer_and_else_by_the_ring)
{
    for (uint64_t pins = 1; pins <= 2; pins++) { /* the ring's alone; the buffer's too */
        const struct client_rig_wish wish = {.place = CLIENT_RIG_FAR, .seed = 3};
        struct client_twins twins;
        device_far_reset();
        device_far_faults.pins_max = pins;
        client_rig_make(&twins.far, &wish);
        client_rig_make(&twins.host, &(struct client_rig_wish){.seed = 3});
        cr_expect_eq(twins.far.client->memory->pinned[0], pins == 2);
        push_both(&twins, CLIENT_GRADIENT, 100000, pins == 2 ? "straight" : "by the ring");
        client_twins_free(&twins);
    }
}

Test(client_memory, accumulated_gradients_are_those_of_host_memory)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct client_twins twins;
        client_twins_make(
            &twins, &(struct client_rig_wish){.place = seed % 2 ? CLIENT_RIG_FAR : CLIENT_RIG_MIXED,
                                              .codec = (enum arithmetic_codec)(seed % 4),
                                              .seed = seed});
        for (uint64_t k = 1; k <= 3; k++) {
            client_rig_gradient(&twins.far, seed * 10 + k, UINT64_MAX);
            client_rig_gradient(&twins.host, seed * 10 + k, UINT64_MAX);
            cr_assert_eq(gradweir_accumulate(twins.far.client, k), GRADWEIR_OK);
            cr_assert_eq(gradweir_accumulate(twins.host.client, k), GRADWEIR_OK);
        }
        push_both(&twins, CLIENT_ACCUMULATED, 100000, "accumulated");
        client_twins_free(&twins);
    }
}

Test(client_memory, a_ranks_part_is_spread_and_accumulated_as_from_host_memory)
{
    for (uint64_t seed = 1; seed <= 2; seed++) {
        struct client_twins twins;
        client_twins_make(
            &twins, &(struct client_rig_wish){.place = seed % 2 ? CLIENT_RIG_FAR : CLIENT_RIG_MIXED,
                                              .ranks = 2,
                                              .seed = seed});
        struct gradweir_client *far = twins.far.client, *host = twins.host.client;
        cr_assert_eq(client_body_share(far, far->buffers[0]), GRADWEIR_OK);
        cr_assert_eq(client_body_share(host, host->buffers[0]), GRADWEIR_OK);
        cr_expect_eq(memcmp(far->buffers[0], host->buffers[0], (size_t)far->body_bytes), 0);
        cr_assert_eq(gradweir_accumulate(far, 3), GRADWEIR_OK);
        cr_assert_eq(gradweir_accumulate(host, 3), GRADWEIR_OK);
        cr_expect_eq(memcmp(far->gathered, host->gathered, (size_t)far->body_bytes), 0);
        client_twins_free(&twins);
    }
}

static void receive(struct client_rig *rig, uint64_t seed)
{
    struct gradweir_client *client = rig->client;
    cr_assert_eq(client_body_receive(client), GRADWEIR_OK);
    for (uint64_t i = 0; i < client->body_bytes; i++)
        client->received[i] = (uint8_t)(i * 131 + i / 253 + seed);
    client->pulled = true;
}

Test(client_memory, pulled_parameters_reach_far_memory_whole)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct client_twins twins;
        client_twins_make(
            &twins, &(struct client_rig_wish){.place = seed % 2 ? CLIENT_RIG_FAR : CLIENT_RIG_MIXED,
                                              .seed = seed});
        receive(&twins.far, seed);
        receive(&twins.host, seed);
        cr_assert_eq(client_body_load(twins.far.client), GRADWEIR_OK);
        cr_assert_eq(client_body_load(twins.host.client), GRADWEIR_OK);
        for (size_t array = 1; array < 2 * CLIENT_RIG_TENSORS; array += 2) {
            const size_t bytes = (size_t)client_rig_bytes(&twins.far, array);
            uint8_t *a = malloc(bytes), *b = malloc(bytes);
            cr_assert(a && b);
            client_rig_get(&twins.far, array, a);
            client_rig_get(&twins.host, array, b);
            cr_expect_eq(memcmp(a, b, bytes), 0, "tensor %zu", array / 2);
            free(a);
            free(b);
        }
        client_twins_free(&twins);
    }
}

Test(client_memory, parameters_may_be_copied_into_far_memory)
{
    struct client_twins twins;
    client_twins_make(&twins, &(struct client_rig_wish){.place = CLIENT_RIG_FAR, .seed = 1});
    struct gradweir_client *client = twins.far.client;
    const uint64_t elements = client->model->elements;
    float *far = device_far_new((size_t)elements * sizeof(float), 0);
    float *back = malloc((size_t)elements * sizeof(float));
    cr_assert(back);
    receive(&twins.far, 3);
    cr_assert_eq(gradweir_parameters(client, far, elements), GRADWEIR_OK);
    device_far_get(far, back, (size_t)elements * sizeof(float));
    cr_expect_eq(memcmp(back, client->received, (size_t)elements * sizeof(float)), 0);
    free(back);
    device_far_delete(far);
    client_twins_free(&twins);
}

Test(client_memory, boxes_that_are_far_land_in_host_memory_and_then_where_they_belong)
{
    enum { BOXES = 3 };
    struct client_twins twins;
    client_twins_make(&twins, &(struct client_rig_wish){.place = CLIENT_RIG_FAR, .seed = 2});
    struct gradweir_client *client = twins.far.client;
    struct pull_boxes *pull = &client->pull_boxes;
    uint8_t host[1000], back[3000], *far[2] = {device_far_new(3000, 0), device_far_new(700, 0)};
    pull->boxes = calloc(BOXES, sizeof *pull->boxes);
    pull->to = calloc(BOXES, sizeof *pull->to);
    pull->bytes = calloc(BOXES, sizeof *pull->bytes);
    cr_assert(pull->boxes && pull->to && pull->bytes);
    pull->count = BOXES;
    memcpy(pull->to, (uint8_t *[]){far[0], host, far[1]}, BOXES * sizeof *pull->to);
    memcpy(pull->bytes, (uint64_t[]){3000, 1000, 700}, BOXES * sizeof *pull->bytes);
    cr_assert_eq(client_memory_boxes(client), GRADWEIR_OK, "%s", fail_reason());
    cr_expect_eq(pull->to[1], host);
    cr_expect(client_memory_landing(client, 1) && !client_memory_landing(client, 2));
    for (size_t box = 0; box < BOXES; box++)
        memset(client_pull_place(client, (uint32_t)box + 1, 0), (int)box + 5,
               (size_t)pull->bytes[box]);
    const uint64_t before = device_far_seen.given;
    cr_assert_eq(client_memory_unload(client), GRADWEIR_OK);
    cr_expect_eq(device_far_seen.given, before, "it has not ended");
    client_memory_landed(client, true);
    cr_assert_eq(client_memory_unload(client), GRADWEIR_OK);
    device_far_get(far[0], back, 3000);
    cr_expect(back[0] == 5 && back[2999] == 5);
    device_far_get(far[1], back, 700);
    cr_expect(back[0] == 7 && back[699] == 7 && host[999] == 6);
    const uint64_t given = device_far_seen.given;
    cr_assert_eq(client_memory_unload(client), GRADWEIR_OK); /* once is enough */
    cr_expect_eq(device_far_seen.given, given);
    device_far_delete(far[0]);
    device_far_delete(far[1]);
    client_twins_free(&twins);
}
