/* Pushes that are made in a device's memory: the bytes, checksums and numbers of those that the
 * processor makes, and nobody but the device's jobs touches the floats. Where that cannot be had,
 * staging is taken and says why, or bind refuses. */
#include "client/client_direct.h"
#include "client/client_feedback.h"
#include "common/checksum.h"
#include "common/codec.h"
#include "tests/unit/client_rig.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void twins_make(struct client_twins *twins, struct client_rig_wish wish)
{
    wish.place = CLIENT_RIG_FAR;
    wish.known = true;
    wish.path = GRADWEIR_MEMORY_PATH_DIRECT;
    client_twins_make(twins, &wish);
}

static uint32_t crc_of(const struct gradweir_client *client, uint64_t offset, uint64_t length)
{
    uint32_t crc = 0;
    cr_assert_eq(client_encode_crc(client, 0, offset, length, &crc), GRADWEIR_OK, "%s",
                 fail_reason());
    return crc;
}

/* Every chunk as it leaves, and stretches that are cut anyhow. */
static void expect_sums(const struct gradweir_client *client, const uint8_t *body, uint64_t bytes)
{
    const uint64_t chunk = codec_chunk(client->session.codec, client->session.chunk_bytes);
    for (uint64_t at = 0; at < bytes; at += chunk) {
        const uint64_t some = bytes - at < chunk ? bytes - at : chunk;
        const uint64_t before = device_far_seen.given;
        cr_expect_eq(crc_of(client, at, some), checksum_crc32c(0, body + at, (size_t)some));
        cr_expect_eq(device_far_seen.given, before, "nobody reads a chunk again");
    }
    for (uint64_t at = 13; at + 40000 < bytes; at += 400001)
        cr_expect_eq(crc_of(client, at, 39999), checksum_crc32c(0, body + at, 39999));
}

static void push_both(struct client_twins *twins, enum client_source source, uint64_t piece)
{
    struct client_encoding a, b;
    const struct gradweir_client *far = twins->far.client, *host = twins->host.client;
    uint32_t memory = 0;
    client_twins_encode(twins, source, piece, &a, &b);
    const uint8_t *body = client_direct_body(far, 0, &memory);
    cr_assert_eq(body != NULL, source == CLIENT_GRADIENT);
    uint8_t *bytes = malloc((size_t)a.filled);
    cr_assert(bytes);
    if (body)
        device_far_get(body, bytes, (size_t)a.filled);
    else
        memcpy(bytes, far->buffers[0], (size_t)a.filled);
    cr_expect_eq(memcmp(bytes, host->buffers[0], (size_t)a.filled), 0, "bytes");
    expect_sums(far, bytes, a.filled);
    expect_sums(host, bytes, a.filled);
    free(bytes);
}

Test(client_direct, a_push_has_the_bytes_and_numbers_of_one_that_the_processor_makes)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct client_twins twins;
        twins_make(&twins, (struct client_rig_wish){.codec = (enum arithmetic_codec)(seed % 4),
                                                    .seed = seed});
        cr_expect_str_eq(client_memory_path_name(twins.far.client), "direct");
        const uint64_t elements = twins.far.client->model->elements;
        push_both(&twins, CLIENT_GRADIENT, 1 + seed * 100000);
        cr_expect_eq(device_far_seen.encoded, elements);
        push_both(&twins, CLIENT_PARAMETERS, 500000); /* the same buffer, by staging */
        client_rig_gradient(&twins.far, seed + 50, UINT64_MAX);
        client_rig_gradient(&twins.host, seed + 50, UINT64_MAX);
        push_both(&twins, CLIENT_GRADIENT, UINT64_MAX / 2);
        cr_expect_eq(device_far_seen.encoded, 2 * elements);
        client_twins_free(&twins);
    }
}

static void expect_owed(const struct client_twins *twins, double off)
{
    const struct gradweir_client *far = twins->far.client;
    const size_t n = (size_t)far->model->elements;
    float *there = malloc(n * sizeof *there);
    const float *right = (const float *)(const void *)twins->host.client->rest;
    double worst = 0;
    cr_assert(there && far->memory->direct->rest && right);
    cr_assert_eq(staging_flush(&far->memory->staging), GRADWEIR_OK);
    device_far_get(far->memory->direct->rest, there, n * sizeof *there);
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)there[i] - (double)right[i]));
    cr_expect(worst <= off, "what is owed is off by %g", worst);
    free(there);
}

static void new_gradients(struct client_twins *twins, uint64_t seed, uint64_t spoiled)
{
    client_rig_gradient(&twins->far, seed, spoiled);
    client_rig_gradient(&twins->host, seed, spoiled);
}

static void hear(struct client_twins *twins, uint32_t verdict)
{
    client_feedback_verdict(twins->far.client, 0, verdict);
    client_feedback_verdict(twins->host.client, 0, verdict);
}

Test(client_direct, what_an_encoding_leaves_out_stays_owed_as_it_does_in_host_memory)
{
    for (uint64_t seed = 1; seed <= 3; seed++) { /* bfloat16, float16, int8 */
        struct client_twins twins;
        twins_make(&twins, (struct client_rig_wish){.codec = (enum arithmetic_codec)seed,
                                                    .feedback = GRADWEIR_FEEDBACK_ON,
                                                    .seed = seed});
        for (uint64_t push = 0; push < 3; push++) {
            new_gradients(&twins, seed * 10 + push, UINT64_MAX);
            push_both(&twins, CLIENT_GRADIENT, 100000);
            expect_owed(&twins, 0);
        }
        cr_expect(twins.far.client->returns[0]);
        hear(&twins, VERDICT_STALE);
        expect_owed(&twins, 0);
        new_gradients(&twins, 77, UINT64_MAX);
        push_both(&twins, CLIENT_GRADIENT, 100000);
        hear(&twins, VERDICT_ADMITTED);
        expect_owed(&twins, 0);
        client_twins_free(&twins);
    }
}

/* Gradients from there, and accumulated ones from here: what one leaves owed the next takes along.
 */
Test(client_direct, what_is_owed_comes_to_where_the_next_push_is_made)
{
    struct client_twins twins;
    twins_make(&twins, (struct client_rig_wish){.codec = ARITHMETIC_INT8, .seed = 6});
    for (uint64_t push = 0; push < 7; push++) {
        const bool gathers = push % 3 == 1;
        new_gradients(&twins, 100 + push, UINT64_MAX);
        if (gathers) {
            cr_assert_eq(gradweir_accumulate(twins.far.client, 3), GRADWEIR_OK);
            cr_assert_eq(gradweir_accumulate(twins.host.client, 3), GRADWEIR_OK);
        }
        push_both(&twins, gathers ? CLIENT_ACCUMULATED : CLIENT_GRADIENT, 100000);
        twins.far.client->gathered_samples = twins.host.client->gathered_samples = 0;
        hear(&twins, push > 3 ? VERDICT_QUEUE_FULL : VERDICT_ADMITTED);
    }
    expect_owed(&twins, 0);
    client_twins_free(&twins);
}

/* The processor stops taking it along where it sees it, the GPU at the end: both undo what they
 * took, to within rounding. */
Test(client_direct, a_push_that_is_not_finite_or_too_large_leaves_nothing_owed_behind)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct client_twins twins;
        struct client_encoding encoding;
        twins_make(&twins,
                   (struct client_rig_wish){.codec = seed % 2 ? ARITHMETIC_INT8 : ARITHMETIC_BF16,
                                            .feedback = GRADWEIR_FEEDBACK_ON,
                                            .seed = seed});
        push_both(&twins, CLIENT_GRADIENT, 100000);
        if (seed > 2)
            twins.far.client->session.magnitude_max = 0.25;
        new_gradients(&twins, seed, seed > 2 ? UINT64_MAX : seed * 60000);
        client_rig_encode(&twins.far, CLIENT_GRADIENT, 100000, &encoding);
        cr_expect(encoding.refused && !twins.far.client->returns[0]);
        expect_owed(&twins, 1e-6);
        client_feedback_verdict(twins.far.client, 0, VERDICT_NOT_FINITE);
        expect_owed(&twins, 1e-6);
        twins.far.client->session.magnitude_max = 1e30;
        client_rig_gradient(&twins.far, seed + 50, UINT64_MAX);
        client_rig_encode(&twins.far, CLIENT_GRADIENT, 100000, &encoding);
        cr_expect(!encoding.refused && twins.far.client->returns[0], "the next one is good");
        client_twins_free(&twins);
    }
}

Test(client_direct, what_was_accumulated_goes_by_staging)
{
    struct client_twins twins;
    twins_make(&twins, (struct client_rig_wish){.codec = ARITHMETIC_BF16, .seed = 2});
    cr_assert_eq(gradweir_accumulate(twins.far.client, 3), GRADWEIR_OK);
    cr_assert_eq(gradweir_accumulate(twins.host.client, 3), GRADWEIR_OK);
    push_both(&twins, CLIENT_ACCUMULATED, 100000);
    client_twins_free(&twins);
}

/* The finite test is in the norm, and in the servers'. */
Test(client_direct, a_gradient_that_is_not_finite_says_so_in_its_norm)
{
    struct client_twins twins;
    struct client_encoding encoding;
    twins_make(&twins, (struct client_rig_wish){.codec = ARITHMETIC_F32, .seed = 1});
    client_rig_gradient(&twins.far, 1, 200000);
    client_rig_encode(&twins.far, CLIENT_GRADIENT, 100000, &encoding);
    cr_expect(encoding.norm > 1e300);
    client_twins_free(&twins);
}

static void expect_refused(struct client_rig_wish wish, const char *reason)
{
    struct client_rig rig;
    device_far_reset();
    wish.seed = 2;
    wish.path = GRADWEIR_MEMORY_PATH_DIRECT;
    client_rig_new(&rig, &wish);
    cr_expect_eq(client_rig_bind(&rig, &wish), GRADWEIR_ERR_UNSUPPORTED);
    cr_expect(strstr(fail_reason(), "options.memory_path is direct: "), "%s", fail_reason());
    cr_expect(strstr(fail_reason(), reason), "\"%s\" says nothing of \"%s\"", fail_reason(),
              reason);
    client_rig_free(&rig);
    wish.path = GRADWEIR_MEMORY_PATH_AUTO;
    client_rig_make(&rig, &wish);
    char text[400];
    client_memory_text(rig.client, text, sizeof text);
    cr_expect(strstr(text, "by staging") && strstr(text, reason), "%s", text);
    cr_expect_str_eq(client_memory_path_name(rig.client), "staging");
    client_rig_free(&rig);
}

Test(client_direct, what_does_not_go_directly_is_refused_by_name_or_staged_and_said)
{
    expect_refused((struct client_rig_wish){.place = CLIENT_RIG_FAR}, "knows host memory only");
    expect_refused((struct client_rig_wish){.place = CLIENT_RIG_MIXED, .known = true},
                   "its gradients lie where the processor reads them");
    expect_refused((struct client_rig_wish){.place = CLIENT_RIG_FAR, .known = true, .ranks = 2},
                   "a rank's share");
}

Test(client_direct, staging_that_is_asked_for_is_taken)
{
    struct client_rig rig;
    const struct client_rig_wish wish = {
        .place = CLIENT_RIG_FAR, .known = true, .path = GRADWEIR_MEMORY_PATH_STAGING, .seed = 1};
    device_far_reset();
    client_rig_make(&rig, &wish);
    cr_expect_str_eq(client_memory_path_name(rig.client), "staging");
    client_rig_free(&rig);
}

static gradweir_status push(struct gradweir_client *client)
{
    struct client_encoding encoding;
    TRY(client_encode_begin(&encoding, client, CLIENT_GRADIENT, 0));
    while (client_encode_more(&encoding, 200000))
        ;
    return encoding.status;
}

Test(client_direct, a_device_that_is_lost_amid_a_push_is_told_for_good)
{
    gradweir_status status = GRADWEIR_ERR_LOST;
    uint64_t good = 0;
    while (status == GRADWEIR_ERR_LOST) {
        struct client_rig rig;
        const struct client_rig_wish wish = {.place = CLIENT_RIG_FAR,
                                             .known = true,
                                             .path = GRADWEIR_MEMORY_PATH_DIRECT,
                                             .codec = ARITHMETIC_BF16,
                                             .seed = 4};
        device_far_reset();
        device_far_faults.copies_good = ++good;
        client_rig_make(&rig, &wish);
        status = push(rig.client);
        if (status != GRADWEIR_OK) {
            cr_expect(strstr(fail_reason(), "the device is lost"), "%s", fail_reason());
            cr_expect_eq(push(rig.client), GRADWEIR_ERR_LOST);
            cr_expect_eq(client_memory_whole(rig.client), GRADWEIR_ERR_LOST);
        }
        client_rig_free(&rig);
    }
    cr_expect_eq(status, GRADWEIR_OK);
    cr_expect(good > 6, "it was lost at %llu places only", (unsigned long long)good - 1);
}

static void find_body(void *context, uint64_t at, struct staging_stretch *found)
{
    const struct client_direct *direct = context;
    *found = (struct staging_stretch){
        .from = direct->bodies[0] + at, .bytes = direct->bytes - at, .far = true};
}

/* Whoever would send that chunk does not. */
Test(client_direct, a_checksum_that_cannot_be_read_back_has_a_status)
{
    uint64_t jobs = 0;
    for (int lost = 0; lost < 2; lost++) {
        struct client_rig rig;
        struct client_encoding encoding;
        const struct client_rig_wish wish = {
            .place = CLIENT_RIG_FAR, .known = true, .path = GRADWEIR_MEMORY_PATH_DIRECT, .seed = 3};
        uint32_t crc = 77;
        device_far_reset();
        device_far_faults.copies_good = jobs;
        client_rig_make(&rig, &wish);
        client_rig_encode(&rig, CLIENT_GRADIENT, 100000, &encoding);
        jobs = device_far_seen.given;
        struct staging *staging = &rig.client->memory->staging;
        const struct staging_source source = {.find = find_body,
                                              .context = rig.client->memory->direct};
        if (!lost)
            cr_assert_eq(staging_read_begin(staging, &source, 1000, NULL), GRADWEIR_OK);
        cr_expect_eq(client_encode_crc(rig.client, 0, 13, 40000, &crc),
                     lost ? GRADWEIR_ERR_LOST : GRADWEIR_ERR_AGAIN);
        cr_expect_eq(crc, 77u);
        client_rig_free(&rig);
    }
}
