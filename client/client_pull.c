/* Pulls with options: boxes into memory of their own, bfloat16, only if newer, one version exactly.
 */
#include "client/client_memory.h"

#include "common/checksum.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static_assert((int)GRADWEIR_BOXES_MAX == (int)PIECES_MAX,
              "a box is at most one piece of each shard");

/* What the first release's struct ended with. */
enum { FIRST_SIZE = sizeof(gradweir_pull_options) };

void gradweir_pull_options_default_sized(gradweir_pull_options *options, size_t size)
{
    if (!options || size < sizeof options->size)
        return;
    memset(options, 0, size);
    options->size = size;
}

/* A newer caller's further members must be as by default: 0. */
static gradweir_status check_options(const gradweir_client *client,
                                     const gradweir_pull_options *options)
{
    const uint8_t *bytes = (const uint8_t *)options;
    if (options->size < FIRST_SIZE)
        return fail(GRADWEIR_ERR_INVALID,
                    "options.size is %zu, at least %d is wanted: call "
                    "gradweir_pull_options_default",
                    options->size, FIRST_SIZE);
    for (size_t i = sizeof *options; i < options->size; i++)
        if (bytes[i])
            return fail(GRADWEIR_ERR_INVALID,
                        "options.size is %zu, this library knows %zu, and what is beyond is not 0: "
                        "the library is older than its header",
                        options->size, sizeof *options);
    if (!client->bound)
        return fail(GRADWEIR_ERR_STATE, "pull comes after bind");
    if (client->failed != GRADWEIR_OK)
        return fail(client->failed, "%s: %s", client->address, client->failed_text);
    if (options->dtype > GRADWEIR_BFLOAT16)
        return fail(GRADWEIR_ERR_INVALID, "dtype is %u: float32 (%d) and bfloat16 (%d) are allowed",
                    options->dtype, GRADWEIR_FLOAT32, GRADWEIR_BFLOAT16);
    if (options->conditional > 1 || options->exact > 1 || options->conditional + options->exact > 1)
        return fail(GRADWEIR_ERR_INVALID,
                    "conditional is %u and exact is %u: each is 0 or 1, and not both are 1",
                    options->conditional, options->exact);
    if (options->boxes_count > GRADWEIR_BOXES_MAX)
        return fail(GRADWEIR_ERR_INVALID, "%zu boxes: at most %d are allowed, pull in turns",
                    options->boxes_count, GRADWEIR_BOXES_MAX);
    if (options->boxes_count && (!options->boxes || options->to))
        return fail(GRADWEIR_ERR_INVALID,
                    "%zu boxes, and options.%s: boxes have memory of their own",
                    options->boxes_count, options->boxes ? "to too" : "boxes is NULL");
    if (!options->boxes_count && !options->to && options->dtype != GRADWEIR_FLOAT32)
        return fail(GRADWEIR_ERR_INVALID,
                    "bound memory is float32: all parameters as bfloat16 go to options.to");
    return GRADWEIR_OK;
}

/* Taken once: what is in flight may still be read from it. */
static gradweir_status take_tables(struct gradweir_client *client)
{
    struct pull_boxes *pull = &client->pull_boxes;
    if (pull->lists)
        return GRADWEIR_OK;
    if (!pull->boxes)
        pull->boxes = calloc(GRADWEIR_BOXES_MAX, sizeof *pull->boxes);
    if (!pull->to)
        pull->to = calloc(GRADWEIR_BOXES_MAX, sizeof *pull->to);
    if (!pull->bytes)
        pull->bytes = calloc(GRADWEIR_BOXES_MAX, sizeof *pull->bytes);
    if (pull->boxes && pull->to && pull->bytes)
        pull->lists =
            calloc((size_t)client->session.members_count * PIECES_MAX, sizeof *pull->lists);
    return pull->lists ? GRADWEIR_OK
                       : fail(GRADWEIR_ERR_NO_MEMORY, "no memory for %d boxes of %u shards",
                              GRADWEIR_BOXES_MAX, client->session.members_count);
}

void client_pull_free(struct gradweir_client *client)
{
    free(client->pull_boxes.boxes);
    free(client->pull_boxes.to);
    free(client->pull_boxes.bytes);
    free(client->pull_boxes.lists);
}

static gradweir_status check_room(const struct gradweir_client *client, const struct part *box,
                                  const char *name, uint32_t dtype, uint64_t room)
{
    const uint64_t bytes = box_bytes(box, client->model, dtype == GRADWEIR_BFLOAT16);
    if (room == bytes)
        return GRADWEIR_OK;
    return fail(GRADWEIR_ERR_INVALID, "to_bytes of %s is %llu: %llu elements there need %llu", name,
                (unsigned long long)room, (unsigned long long)box_elements(box, client->model),
                (unsigned long long)bytes);
}

/* From each box that came before. */
static gradweir_status check_apart(const struct gradweir_client *client, uint32_t i,
                                   const struct part *box, const gradweir_box *from)
{
    const struct pull_boxes *pull = &client->pull_boxes;
    const struct part *other = &pull->boxes[i];
    if (box_meets(other, box))
        return fail(
            GRADWEIR_ERR_INVALID,
            "boxes %u and %u share elements of tensor %s: %llu from %llu on of axis %u, and "
            "%llu from %llu on of axis %u",
            i, pull->count, from->tensor, (unsigned long long)other->count,
            (unsigned long long)other->first, other->axis, (unsigned long long)box->count,
            (unsigned long long)box->first, box->axis);
    const uint8_t *to = from->to, *its = pull->to[i];
    if (its < to + from->to_bytes && to < its + pull->bytes[i])
        return fail(GRADWEIR_ERR_INVALID, "boxes %u and %u, of tensor %s, share memory", i,
                    pull->count, from->tensor);
    return GRADWEIR_OK;
}

static gradweir_status add_box(struct gradweir_client *client, const gradweir_box *from,
                               uint32_t dtype)
{
    struct pull_boxes *pull = &client->pull_boxes;
    const struct model_tensor *tensor =
        from->tensor ? model_find(client->model, from->tensor) : NULL;
    if (!tensor)
        return fail(GRADWEIR_ERR_INVALID, "box %u: the model has no tensor \"%.63s\"", pull->count,
                    from->tensor ? from->tensor : "");
    const struct part box = {.tensor = (uint32_t)(tensor - client->model->tensors),
                             .axis = from->axis,
                             .first = from->first,
                             .count = from->count};
    if (!from->to)
        return fail(GRADWEIR_ERR_INVALID, "box %u, of tensor %s: to is NULL", pull->count,
                    tensor->name);
    TRY(box_check(&box, client->model));
    TRY(check_room(client, &box, tensor->name, dtype, from->to_bytes));
    for (uint32_t i = 0; i < pull->count; i++)
        TRY(check_apart(client, i, &box, from));
    pull->boxes[pull->count] = box;
    pull->bytes[pull->count] = from->to_bytes;
    pull->to[pull->count++] = from->to;
    return GRADWEIR_OK;
}

static gradweir_status add_boxes(struct gradweir_client *client,
                                 const gradweir_pull_options *options)
{
    struct pull_boxes *pull = &client->pull_boxes;
    TRY(take_tables(client));
    pull->count = 0;
    for (size_t i = 0; i < options->boxes_count; i++)
        TRY(add_box(client, &options->boxes[i], options->dtype));
    if (options->boxes_count)
        return GRADWEIR_OK;
    pull->boxes[0] = (struct part){.tensor = PIECES_ALL, .count = client->model->elements};
    pull->to[0] = options->to;
    pull->bytes[0] = options->to_bytes;
    pull->count = 1;
    return check_room(client, &pull->boxes[0], "options, for all parameters,", options->dtype,
                      options->to_bytes);
}

static gradweir_status pull_with(struct gradweir_client *client,
                                 const gradweir_pull_options *options, gradweir_ticket *ticket)
{
    TRY(check_options(client, options));
    struct session_pull_request request = {.half = options->dtype == GRADWEIR_BFLOAT16,
                                           .newer = options->conditional != 0,
                                           .exact = options->exact != 0,
                                           .version = options->conditional ? options->newer_than
                                                                           : options->version};
    if (options->boxes_count || options->to) {
        if (client->session.pulling) /* whose boxes these are */
            return fail(GRADWEIR_ERR_STATE, "a pull is under way: wait for ticket %llu first",
                        (unsigned long long)client->pull_ticket);
        TRY(client_memory_unload(client)); /* of one that nobody has waited for */
        TRY(add_boxes(client, options));
        TRY(client_memory_boxes(client));
        request.boxes = client->pull_boxes.boxes;
        request.boxes_count = client->pull_boxes.count;
    }
    return client_pull(client, &request, false, ticket);
}

gradweir_status gradweir_pull_with(gradweir_client *client, const gradweir_pull_options *options,
                                   gradweir_ticket *ticket)
{
    TRY(client_given(client, "client"));
    TRY(client_given(options, "options"));
    TRY(client_given(ticket, "ticket (where it goes)"));
    client_lock(client);
    const gradweir_status status = pull_with(client, options, ticket);
    client_unlock(client);
    return status;
}

void client_pull_list(struct gradweir_client *client, uint32_t member, struct outbox_item *item)
{
    struct piece *list = client->pull_boxes.lists + (size_t)member * PIECES_MAX;
    struct head_pull head;
    memcpy(&head, &item->heads[0], sizeof head);
    head.pieces = session_pull_pieces(&client->session, member, list);
    item->body = list;
    item->length = head.pieces * sizeof *list;
    head.crc = checksum_crc32c(0, list, item->length);
    memcpy(&item->heads[0], &head, sizeof head);
}

void *client_pull_place(const struct gradweir_client *client, uint32_t box, uint64_t offset)
{
    ASSERT(box > 0 && box <= client->pull_boxes.count);
    return client->pull_boxes.to[box - 1] + offset;
}
