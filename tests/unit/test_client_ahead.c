/* A body that is at hand goes to its place and into bound memory in one pass, and a wait that fails
 * takes the latter back. */
#include "client/client_ahead.h"

#include "common/checksum.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 7, FIVE_MB = 5 << 20 };

/* Odd sizes, so that tensors begin and end anywhere in a turn; two of them are nowhere in bound
 * memory; MOMENTS lie behind. `large` makes the body one that goes past the caches. */
static const struct {
    const char *name;
    uint64_t elements;
    enum model_kind kind;
    bool bound;
} shapes[TENSORS] = {{"a", 1, MODEL_PARAMETER, true},     {"b", 123457, MODEL_PARAMETER, true},
                     {"c", 3, MODEL_MOMENTS, true},       {"d", 4095, MODEL_PARAMETER, false},
                     {"e", 99991, MODEL_PARAMETER, true}, {"f", 5, MODEL_MOMENTS, false},
                     {"large", 0, MODEL_PARAMETER, true}};

struct rig {
    struct gradweir_client *client;
    uint8_t *bound[TENSORS], *body, *old;
    uint64_t first[TENSORS], bytes[TENSORS]; /* within a body */
};

static void rig_open(struct rig *rig, uint64_t large)
{
    struct gradweir_client *client = calloc(1, sizeof *client);
    rig->client = client;
    client->tensors = calloc(TENSORS, sizeof *client->tensors);
    client->tensors_count = TENSORS;
    cr_assert_eq(model_new(TENSORS, &client->model), GRADWEIR_OK);
    for (size_t i = 0; i < TENSORS; i++) {
        struct model_tensor tensor = {.kind = shapes[i].kind, .dimensions = 1};
        tensor.shape[0] = shapes[i].elements ? shapes[i].elements : large;
        strcpy(tensor.name, shapes[i].name);
        cr_assert_eq(model_add(client->model, &tensor), GRADWEIR_OK);
    }
    cr_assert_eq(model_seal(client->model), GRADWEIR_OK);
    const uint64_t tail = client->model->elements * sizeof(float);
    client->body_bytes = tail + client->model->moments * sizeof(struct moments);
    for (size_t i = 0; i < TENSORS; i++) {
        const struct model_tensor *tensor = &client->model->tensors[i];
        const bool moments = tensor->kind == MODEL_MOMENTS;
        const uint64_t each = moments ? sizeof(struct moments) : sizeof(float);
        rig->first[i] = (moments ? tail : 0) + tensor->offset * each;
        rig->bytes[i] = tensor->elements * each;
        if (shapes[i].bound)
            client->tensors[i].parameters = rig->bound[i] = calloc(1, rig->bytes[i] + 1);
    }
    client->options.outstanding = 1;
    client->received = calloc(1, client->body_bytes);
    client->buffers[0] = calloc(1, client->body_bytes);
    rig->body = malloc(client->body_bytes);
    rig->old = malloc(client->body_bytes);
    for (uint64_t i = 0; i < client->body_bytes; i++) {
        rig->body[i] = (uint8_t)(i * UINT64_C(0x9e3779b97f4a7c15) >> 56);
        rig->old[i] = (uint8_t)~rig->body[i];
    }
}

static void rig_close(struct rig *rig)
{
    for (size_t i = 0; i < TENSORS; i++)
        free(rig->bound[i]);
    free(rig->client->received);
    free(rig->client->buffers[0]);
    free(rig->client->tensors);
    model_free(rig->client->model);
    free(rig->client);
    free(rig->body);
    free(rig->old);
}

/* Bound memory and the receive buffer hold the old version, and a wait for a new one has begun. */
static void begin(struct rig *rig)
{
    struct gradweir_client *client = rig->client;
    memcpy(client->received, rig->old, client->body_bytes);
    for (size_t i = 0; i < TENSORS; i++)
        if (rig->bound[i])
            memcpy(rig->bound[i], rig->old + rig->first[i], rig->bytes[i]);
    client->ahead.allowed = client->ahead.fresh = true;
    client_ahead_begin(client);
    cr_assert(client->ahead.on);
}

static void check_bound(const struct rig *rig, const uint8_t *body)
{
    for (size_t i = 0; i < TENSORS; i++)
        if (rig->bound[i]) {
            cr_assert(memcmp(rig->bound[i], body + rig->first[i], rig->bytes[i]) == 0, "%s",
                      shapes[i].name);
            cr_assert_eq(rig->bound[i][rig->bytes[i]], 0, "beyond %s", shapes[i].name);
        }
}

/* In bodies of this length, the last of them first, but for those from `until` on. */
static void take_all(const struct rig *rig, uint64_t length, uint64_t until)
{
    struct gradweir_client *client = rig->client;
    for (uint64_t at = (until - 1) / length * length;; at -= length) {
        const uint64_t some = until - at < length ? until - at : length;
        const uint32_t crc =
            client_ahead_take(client, client->received + at, rig->body + at, some, true);
        cr_assert_eq(crc, checksum_crc32c(0, rig->body + at, some));
        if (at == 0)
            return;
    }
}

Test(client_ahead, a_body_at_hand_is_in_both_places_after_one_pass)
{
    for (int large = 0; large < 2; large++) {
        struct rig rig = {0};
        rig_open(&rig, large ? FIVE_MB / 4 + 3 : 77);
        const uint64_t all = rig.client->body_bytes;
        static const uint64_t lengths[] = {1 << 18, 4096, 65540, 1001, 1 << 24};
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            begin(&rig);
            take_all(&rig, lengths[i], all);
            cr_assert(client_ahead_end(rig.client, true));
            cr_assert(memcmp(rig.client->received, rig.body, all) == 0);
            check_bound(&rig, rig.body);
        }
        rig_close(&rig);
    }
}

Test(client_ahead, a_wait_that_fails_takes_back_what_bodies_at_hand_have_written)
{
    struct rig rig = {0};
    rig_open(&rig, FIVE_MB / 4 + 3);
    for (uint64_t part = 1; part <= 8; part++) {
        begin(&rig);
        take_all(&rig, 100003, rig.client->body_bytes * part / 8);
        cr_assert(!client_ahead_end(rig.client, false));
        check_bound(&rig, rig.old);
    }
    rig_close(&rig);
}

Test(client_ahead, what_is_not_for_bound_memory_does_not_go_there)
{
    struct rig rig = {0};
    rig_open(&rig, 77);
    uint8_t elsewhere[5000];
    begin(&rig);
    const uint32_t crc =
        client_ahead_take(rig.client, elsewhere, rig.body, sizeof elsewhere, false);
    cr_assert_eq(crc, checksum_crc32c(0, rig.body, sizeof elsewhere));
    cr_assert(memcmp(elsewhere, rig.body, sizeof elsewhere) == 0);
    cr_assert(client_ahead_end(rig.client, true));
    check_bound(&rig, rig.old);
    rig_close(&rig);
}
