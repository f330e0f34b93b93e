/* Error feedback. The rest r is one float per element: pushed = encode(g + r), then
 * r = (g + r) - decode(pushed), which is exact (codec.h). A push that is refused gives its mass
 * back: r += decode(pushed). A push whose fate is not known gives nothing back: it may have been
 * admitted.
 *
 * A gradient with a NaN, an Inf or an element above magnitude_max will be NOT_FINITE, and must
 * leave nothing behind, or it would spoil all that follow. The client sees it as soon as the
 * servers do: from the piece where it shows on r stays out of it, and what was taken before is
 * undone. */
#include "client/client_feedback.h"

#include "client/client_direct.h"

#include "common/codec.h"
#include "common/encoded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool wanted(const struct gradweir_client *client)
{
    const enum arithmetic_codec codec = client->session.codec;
    if (client->options.role != GRADWEIR_WORKER || codec == ARITHMETIC_F32)
        return false;
    return client->options.feedback == GRADWEIR_FEEDBACK_ON ||
           (client->options.feedback == GRADWEIR_FEEDBACK_AUTO && codec == ARITHMETIC_INT8);
}

/* Blocks have one scale each, so two ranks cannot share one. */
static gradweir_status check_share(const struct gradweir_client *client)
{
    const struct model *model = client->model;
    const uint64_t grain = codec_grain(client->session.codec);
    uint64_t begin, end;
    for (uint64_t at = 0;
         client->parts && parts_run(client->parts, model, at, UINT64_MAX, &begin, &end); at = end) {
        const uint64_t cut = begin % grain ? begin : end;
        if (cut % grain == 0 || cut == model->elements)
            continue;
        return fail(GRADWEIR_ERR_UNSUPPORTED,
                    "gradient_dtype is int8, with one scale for each %llu elements: this rank's "
                    "share is cut at element %llu, in or behind tensor %s, within such a block. "
                    "Cut at multiples of %llu elements of the model, or use bfloat16",
                    (unsigned long long)grain, (unsigned long long)cut,
                    model_tensor_at(model, cut ? cut - 1 : 0)->name, (unsigned long long)grain);
    }
    return GRADWEIR_OK;
}

gradweir_status client_feedback_take(struct gradweir_client *client)
{
    if (client->session.codec == ARITHMETIC_F32 || client->options.role != GRADWEIR_WORKER)
        return GRADWEIR_OK;
    TRY(check_share(client));
    client->block = malloc(ARITHMETIC_BLOCK * sizeof *client->block);
    if (!client->block)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a block");
    if (client->parts)
        TRY(client_body_spare(client, &client->staged));
    if (wanted(client))
        TRY(client_body_spare(client, &client->rest));
    return GRADWEIR_OK;
}

void client_feedback_free(struct gradweir_client *client)
{
    free(client->block);
    client->block = NULL;
    client_body_spare_free(client, &client->staged);
    client_body_spare_free(client, &client->rest);
}

static float *rest_at(const struct gradweir_client *client, uint64_t first)
{
    return (float *)(void *)client->rest + first;
}

void client_feedback_encode(struct client_encoding *encoding, const float *from, uint64_t first,
                            uint64_t n, struct arithmetic_running *running)
{
    const struct gradweir_client *client = encoding->client;
    const enum arithmetic_codec codec = encoding->codec;
    uint8_t *to = client->buffers[encoding->buffer] + codec_bytes(codec, first);
    const bool owes = client->rest && !encoding->refused;
    const struct encoded encoded = {.arithmetic = client->arithmetic,
                                    .codec = codec,
                                    .from = from,
                                    .rest = owes ? rest_at(client, first) : NULL,
                                    .to = to};
    encoding->crc = encoded_sum(&encoded, (size_t)n, encoding->crc, running);
    if (!owes)
        return;
    encoding->owed = first + n;
    encoding->refused =
        !arithmetic_finite(running->largest_bits) ||
        (double)arithmetic_largest(running->largest_bits) > client->session.magnitude_max;
}

/* r = (r + decode(pushed)) - g, but where nothing was taken. */
static void undo(struct client_encoding *encoding, const float *from, uint64_t first, uint64_t n)
{
    struct gradweir_client *client = encoding->client;
    const uint8_t *sent = client->buffers[encoding->buffer] + codec_bytes(encoding->codec, first);
    float *rest = rest_at(client, first);
    for (uint64_t i = 0; i < n; i++) {
        const float there = codec_element(encoding->codec, sent, i);
        if (isfinite(there))
            rest[i] = (rest[i] + there) - from[i];
    }
}

void client_feedback_undo(struct client_encoding *encoding)
{
    const struct gradweir_client *client = encoding->client;
    const float *staged = (const float *)(const void *)client->staged;
    const uint64_t owed = encoding->owed;
    uint64_t begin, end;
    if (encoding->direct) {
        encoding->status = client_direct_undo(encoding);
        return;
    }
    encoding->status = client_encode_rewind(encoding);
    for (uint64_t at = 0; !client->parts && at < owed; at += ARITHMETIC_BLOCK) {
        const uint64_t n = owed - at < ARITHMETIC_BLOCK ? owed - at : ARITHMETIC_BLOCK;
        const float *from =
            encoding->status == GRADWEIR_OK ? client_encode_source(encoding, at, n) : NULL;
        if (!from)
            return;
        undo(encoding, from, at, n);
    }
    for (uint64_t at = 0;
         client->parts && at < owed &&
         parts_run(client->parts, client->model, at, UINT64_MAX, &begin, &end) && begin < owed;
         at = end)
        undo(encoding, staged + begin, begin, (end < owed ? end : owed) - begin);
}

static void give_back(struct gradweir_client *client, uint32_t buffer, uint64_t first, uint64_t n)
{
    const enum arithmetic_codec codec = client->session.codec;
    client->arithmetic->decode_add(codec, client->buffers[buffer] + codec_bytes(codec, first),
                                   (size_t)n, rest_at(client, first));
}

void client_feedback_verdict(struct gradweir_client *client, uint32_t buffer, uint32_t verdict)
{
    const bool returns = client->returns[buffer];
    uint64_t begin, end;
    client->returns[buffer] = false;
    if (!returns || verdict == VERDICT_ADMITTED || verdict == VERDICT_NONE ||
        client_direct_give_back(client, buffer))
        return;
    if (!client->parts) {
        give_back(client, buffer, 0, client->model->elements);
        return;
    }
    for (uint64_t at = 0; parts_run(client->parts, client->model, at, UINT64_MAX, &begin, &end);
         at = end)
        give_back(client, buffer, begin, end - begin);
}
