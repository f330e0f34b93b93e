/* What the caller says the model is: groups, tensors, and the layout they make. */
#include "client/client_internal.h"

#include <stdlib.h>
#include <string.h>

static struct model_group group_of(const gradweir_group *from)
{
    return (struct model_group){.learning_rate_scale = from->learning_rate_scale,
                                .weight_decay = from->weight_decay,
                                .beta1 = from->beta1,
                                .beta2 = from->beta2,
                                .frozen = from->frozen != 0};
}

gradweir_status gradweir_group_add(gradweir_client *client, const gradweir_group *group,
                                   uint32_t *number)
{
    TRY(client_given(client, "client"));
    TRY(client_given(group, "group"));
    TRY(client_given(number, "number"));
    if (client->bound)
        return fail(GRADWEIR_ERR_STATE, "groups are added before bind");
    if (client->groups_count == MODEL_GROUPS_MAX)
        return fail(GRADWEIR_ERR_FULL, "a model has at most %u groups", MODEL_GROUPS_MAX);
    const struct model_group wanted = group_of(group);
    TRY(model_group_check(&wanted));
    client->groups[client->groups_count] = *group;
    *number = client->groups_count++;
    return GRADWEIR_OK;
}

static gradweir_status add_groups(struct gradweir_client *client, struct model *model)
{
    for (uint32_t i = 1; i < client->groups_count; i++) {
        const struct model_group group = group_of(&client->groups[i]);
        uint32_t number;
        TRY(model_group_add(model, &group, &number));
    }
    return GRADWEIR_OK;
}

static gradweir_status add_tensor(struct model *model, const gradweir_tensor *from)
{
    struct model_tensor tensor = {.kind = from->kind == GRADWEIR_MOMENTS ? MODEL_MOMENTS
                                                                         : MODEL_PARAMETER,
                                  .group = from->group,
                                  .dimensions = from->dimensions};
    if (!from->name)
        return fail(GRADWEIR_ERR_INVALID, "a tensor has no name");
    if (from->kind != GRADWEIR_PARAMETER && from->kind != GRADWEIR_MOMENTS)
        return fail(GRADWEIR_ERR_INVALID, "tensor %.63s: kind %u is neither PARAMETER nor MOMENTS",
                    from->name, from->kind);
    TRY(client_copy_text(tensor.name, sizeof tensor.name, from->name, "a tensor's name"));
    if (from->dimensions > MODEL_DIMENSIONS_MAX)
        return fail(GRADWEIR_ERR_INVALID, "tensor %s has %u dimensions, at most %d are allowed",
                    from->name, from->dimensions, MODEL_DIMENSIONS_MAX);
    memcpy(tensor.shape, from->shape, sizeof tensor.shape);
    return model_add(model, &tensor);
}

gradweir_status client_model_build(struct gradweir_client *client, const gradweir_tensor *tensors,
                                   size_t count)
{
    if (count > MODEL_TENSORS_MAX)
        return fail(GRADWEIR_ERR_INVALID, "%zu tensors: at most %u are allowed", count,
                    MODEL_TENSORS_MAX);
    TRY(model_new((uint32_t)count, &client->model));
    TRY(add_groups(client, client->model));
    for (size_t i = 0; i < count; i++)
        TRY(add_tensor(client->model, &tensors[i]));
    TRY(model_seal(client->model));
    client->tensors = calloc(count, sizeof *client->tensors);
    if (!client->tensors)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for %zu tensors", count);
    memcpy(client->tensors, tensors, count * sizeof *tensors);
    client->tensors_count = count;
    return GRADWEIR_OK;
}
