/* Pushes that are made in a device's memory: the bytes, checksums and numbers of those that the
 * processor makes, and nobody but the device's jobs touches the floats. Where that cannot be had,
 * staging is taken and says why, or bind refuses. */
#include "client/client_direct.h"
#include "common/checksum.h"
#include "common/codec.h"
#include "tests/unit/client_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

struct twins {
    struct client_rig far, host;
};

static void twins_make(struct twins *twins, struct client_rig_wish wish)
{
    device_far_reset();
    device_far_faults.polls_idle = wish.seed % 3;
    wish.place = CLIENT_RIG_FAR;
    wish.known = true;
    wish.path = GRADWEIR_MEMORY_PATH_DIRECT;
    wish.feedback = GRADWEIR_FEEDBACK_OFF;
    client_rig_make(&twins->far, &wish);
    wish.place = CLIENT_RIG_HOST;
    wish.path = GRADWEIR_MEMORY_PATH_AUTO;
    client_rig_make(&twins->host, &wish);
}

static void twins_free(struct twins *twins)
{
    client_rig_free(&twins->far);
    client_rig_free(&twins->host);
}

static void encode(struct client_rig *rig, enum client_source source, uint64_t piece,
                   struct client_encoding *encoding)
{
    cr_assert_eq(client_encode_begin(encoding, rig->client, source, 0), GRADWEIR_OK, "%s",
                 fail_reason());
    while (client_encode_more(encoding, piece))
        ;
    cr_assert_eq(encoding->status, GRADWEIR_OK, "%s", fail_reason());
}

/* Every chunk as it leaves, and stretches that are cut anyhow. */
static void expect_sums(const struct gradweir_client *client, const uint8_t *body, uint64_t bytes)
{
    const uint64_t chunk = codec_chunk(client->session.codec, client->session.chunk_bytes);
    for (uint64_t at = 0; at < bytes; at += chunk) {
        const uint64_t some = bytes - at < chunk ? bytes - at : chunk;
        const uint64_t before = device_far_seen.given;
        cr_expect_eq(client_encode_crc(client, 0, at, some),
                     checksum_crc32c(0, body + at, (size_t)some));
        cr_expect_eq(device_far_seen.given, before, "nobody reads a chunk again");
    }
    for (uint64_t at = 13; at + 40000 < bytes; at += 400001)
        cr_expect_eq(client_encode_crc(client, 0, at, 39999), checksum_crc32c(0, body + at, 39999));
}

static void push_both(struct twins *twins, enum client_source source, uint64_t piece)
{
    struct client_encoding a, b;
    const struct gradweir_client *far = twins->far.client, *host = twins->host.client;
    uint32_t memory = 0;
    encode(&twins->far, source, piece, &a);
    encode(&twins->host, source, piece + 300000, &b);
    cr_assert_eq(a.filled, b.filled);
    cr_expect_eq(a.digest, b.digest);
    cr_expect_eq(memcmp(&a.norm, &b.norm, sizeof a.norm), 0, "norm %a, %a", a.norm, b.norm);
    cr_expect_eq(memcmp(far->sums[0].crcs, host->sums[0].crcs,
                        ((size_t)far->model->blocks + 1) * sizeof(uint32_t)),
                 0, "checksums");
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
    free(bytes);
}

Test(client_direct, a_push_has_the_bytes_and_numbers_of_one_that_the_processor_makes)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct twins twins;
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
        twins_free(&twins);
    }
}

Test(client_direct, what_was_accumulated_goes_by_staging)
{
    struct twins twins;
    twins_make(&twins, (struct client_rig_wish){.codec = ARITHMETIC_BF16, .seed = 2});
    cr_assert_eq(gradweir_accumulate(twins.far.client, 3), GRADWEIR_OK);
    cr_assert_eq(gradweir_accumulate(twins.host.client, 3), GRADWEIR_OK);
    push_both(&twins, CLIENT_ACCUMULATED, 100000);
    twins_free(&twins);
}

/* The finite test is in the norm, and in the servers'. */
Test(client_direct, a_gradient_that_is_not_finite_says_so_in_its_norm)
{
    struct twins twins;
    struct client_encoding encoding;
    twins_make(&twins, (struct client_rig_wish){.codec = ARITHMETIC_F32, .seed = 1});
    client_rig_gradient(&twins.far, 1, 200000);
    encode(&twins.far, CLIENT_GRADIENT, 100000, &encoding);
    cr_expect(encoding.norm > 1e300);
    twins_free(&twins);
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
    expect_refused(
        (struct client_rig_wish){.place = CLIENT_RIG_FAR, .known = true, .codec = ARITHMETIC_INT8},
        "options.feedback = off");
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
