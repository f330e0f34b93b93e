/* Groups: joining and leaving them, and what is known of them. */
#include "client/group_internal.h"

#include "common/clock.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_SIZE = offsetof(gradweir_group_options, fixed) + sizeof(uint32_t) };

void gradweir_group_options_default_sized(gradweir_group_options *options, size_t size)
{
    const gradweir_group_options defaults = {
        .backend = "gloo", .listen = "127.0.0.1", .timeout_ms = 60000, .patience_ms = 5000};
    if (!options || size < sizeof options->size)
        return;
    memset(options, 0, size);
    memcpy(options, &defaults, size < sizeof defaults ? size : sizeof defaults);
    options->size = size;
}

#undef gradweir_group_options_default
GRADWEIR_API void gradweir_group_options_default(gradweir_group_options *options);
void gradweir_group_options_default(gradweir_group_options *options)
{
    gradweir_group_options_default_sized(options, FIRST_SIZE);
}

static gradweir_status take_text(struct gradweir_ranks *group, const char **text)
{
    if (!*text)
        return GRADWEIR_OK;
    char *copy = strdup(*text);
    if (!copy)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a group");
    group->texts[group->texts_count++] = copy;
    *text = copy;
    return GRADWEIR_OK;
}

static gradweir_status take_client(struct gradweir_ranks *group, const gradweir_options *given)
{
    gradweir_options named;
    if (given->size == sizeof named && (!given->group || !given->group[0])) {
        named = *given;
        named.group = "group"; /* the meeting tells starts apart */
        given = &named;
    }
    TRY(client_options(given, &group->client_options));
    gradweir_options *options = &group->client_options;
    const char **texts[] = {&options->address,    &options->identity,   &options->public_key,
                            &options->secret_key, &options->server_key, &options->transport,
                            &options->devices,    &options->keys,       &options->group};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        TRY(take_text(group, texts[i]));
    if (!options->identity || options->identity[0] == 0)
        return fail(GRADWEIR_ERR_INVALID, "options.client: ranks need an identity, one for all");
    if (options->role != GRADWEIR_WORKER)
        return fail(GRADWEIR_ERR_INVALID, "options.client: ranks are workers, not readers");
    if (options->ranks == 0 || options->ranks > GRADWEIR_RANKS_MAX ||
        options->rank >= options->ranks)
        return fail(GRADWEIR_ERR_INVALID,
                    "options.client: rank is %u of ranks %u: 1 to %d ranks, counted from 0",
                    options->rank, options->ranks, GRADWEIR_RANKS_MAX);
    return GRADWEIR_OK;
}

static gradweir_status take_options(struct gradweir_ranks *group,
                                    const gradweir_group_options *options)
{
    if (options->size < FIRST_SIZE)
        return fail(GRADWEIR_ERR_INVALID,
                    "options.size is %zu, at least %d is wanted: call "
                    "gradweir_group_options_default",
                    options->size, FIRST_SIZE);
    TRY(client_given(options->client, "options.client"));
    TRY(client_copy_text(group->backend, sizeof group->backend, options->backend,
                         "options.backend"));
    TRY(client_copy_text(group->listen, sizeof group->listen, options->listen, "options.listen"));
    if (!collective_find(group->backend))
        return fail(GRADWEIR_ERR_UNSUPPORTED,
                    "options.backend: this build has no \"%.60s\"; gloo and nccl are wanted, where "
                    "they were built",
                    group->backend);
    if (options->patience_ms == 0 || options->patience_ms > options->timeout_ms / 2 ||
        options->timeout_ms > SWAP_PATIENCE_MS_MAX)
        return fail(
            GRADWEIR_ERR_INVALID,
            "options.timeout_ms is %u and patience_ms %u: at most an hour, and of that 1 ms "
            "to half",
            options->timeout_ms, options->patience_ms);
    if (options->samples > GRADWEIR_SAMPLES_SHARED)
        return fail(GRADWEIR_ERR_INVALID,
                    "options.samples is %u: own (0) and shared (1) are allowed", options->samples);
    group->timeout_ns = options->timeout_ms * CLOCK_MS;
    group->patience_ns = options->patience_ms * CLOCK_MS;
    group->shared = options->samples == GRADWEIR_SAMPLES_SHARED;
    group->fixed = options->fixed != 0;
    return take_client(group, options->client);
}

static gradweir_status join(struct gradweir_ranks *group, const gradweir_group_options *options)
{
    TRY(take_options(group, options));
    group->groups[0] = (gradweir_group){1, -1, -1, -1, 0};
    group->groups_count = 1;
    gradweir_options channel = group->client_options;
    channel.ranks = 1;
    channel.rank = 0;
    channel.progress = GRADWEIR_PROGRESS_CALLER;
    if (channel.connect_timeout_ms > options->timeout_ms)
        channel.connect_timeout_ms = options->timeout_ms;
    TRY(gradweir_open(&channel, &group->channel));
    return group_meet(group, 0, group->timeout_ns);
}

gradweir_status gradweir_group_join(const gradweir_group_options *options, gradweir_ranks **group)
{
    TRY(client_given(options, "options"));
    TRY(client_given(group, "group (where it goes)"));
    struct gradweir_ranks *made = calloc(1, sizeof *made);
    if (!made)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a group");
    const gradweir_status status = join(made, options);
    if (status != GRADWEIR_OK) {
        gradweir_group_leave(made);
        return status;
    }
    *group = made;
    return GRADWEIR_OK;
}

void gradweir_group_leave(gradweir_ranks *group)
{
    if (!group)
        return;
    collective_leave(group->ranks);
    group_disconnect(group);
    gradweir_close(group->channel);
    group_unbind(group);
    for (uint32_t i = 0; i < group->texts_count; i++)
        free(group->texts[i]);
    free(group);
}

gradweir_status gradweir_group_tell(const gradweir_ranks *group, gradweir_group_info *info)
{
    TRY(client_given(group, "group"));
    TRY(client_given(info, "info"));
    gradweir_group_info all = {.rank = group->rank,
                               .ranks = group->count,
                               .meeting = group->meeting,
                               .shrunk = group->shrunk,
                               .broken = group->broken,
                               .left_out = group->left_out,
                               .waiting = group->waiting,
                               .step = group->step,
                               .version = group->version};
    if (info->size < sizeof info->size || info->size > sizeof all)
        return fail(GRADWEIR_ERR_INVALID, "info.size is %zu: sizeof(gradweir_group_info) is wanted",
                    info->size);
    memcpy(all.names, group->names, sizeof all.names);
    if (group->ranks) {
        struct collective_info below;
        collective_tell(group->ranks, &below);
        all.step_least = below.step_least;
        all.step_most = below.step_most;
    }
    if (group->client)
        all.waiting |= group->client->called & ~group_names(group);
    all.size = info->size;
    memcpy(info, &all, info->size);
    return GRADWEIR_OK;
}

gradweir_client *gradweir_group_client(gradweir_ranks *group)
{
    return group ? group->client : NULL;
}

gradweir_status gradweir_group_part(gradweir_ranks *group, size_t tensor, uint32_t axis,
                                    uint64_t first, uint64_t count)
{
    TRY(client_given(group, "group"));
    if (group->tensors)
        return fail(GRADWEIR_ERR_STATE, "parts are told before bind");
    if (tensor >= MODEL_TENSORS_MAX)
        return fail(GRADWEIR_ERR_INVALID, "tensor %zu: there are at most %u", tensor,
                    MODEL_TENSORS_MAX);
    struct group_said *said = realloc(group->said, (group->said_count + 1) * sizeof *said);
    if (!said)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for %zu parts", group->said_count + 1);
    group->said = said;
    said[group->said_count++] = (struct group_said){
        .tensor = tensor, .part = {.axis = axis, .first = first, .count = count}};
    group->fixed = true;
    return GRADWEIR_OK;
}

gradweir_status gradweir_group_parameters(gradweir_ranks *group, const gradweir_group *parameters,
                                          uint32_t *number)
{
    TRY(client_given(group, "group"));
    TRY(client_given(parameters, "parameters"));
    TRY(client_given(number, "number (where it goes)"));
    if (group->tensors)
        return fail(GRADWEIR_ERR_STATE, "parameter groups are added before bind");
    if (group->groups_count == MODEL_GROUPS_MAX)
        return fail(GRADWEIR_ERR_FULL, "at most %d parameter groups", MODEL_GROUPS_MAX);
    /* The channel says what is wrong with it; nothing else comes of it there. */
    TRY(gradweir_group_add(group->channel, parameters, number));
    *number = group->groups_count;
    group->groups[group->groups_count++] = *parameters;
    return GRADWEIR_OK;
}
