/* Options of callers of any age: what their struct does not have yet is as by default. */
#include "client/client_internal.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* What the first release's struct ended with. */
enum { FIRST_SIZE = offsetof(gradweir_options, keys) };

static const gradweir_options defaults = {.address = "127.0.0.1:7070",
                                          .identity = "",
                                          .role = GRADWEIR_WORKER,
                                          .connect_timeout_ms = 10000,
                                          .outstanding = 1,
                                          .transport = "auto",
                                          .devices = "",
                                          .keys = "",
                                          .group = "",
                                          .ranks = 1,
                                          .feedback = GRADWEIR_FEEDBACK_AUTO};

void gradweir_options_default_sized(gradweir_options *options, size_t size)
{
    const size_t known = size < sizeof defaults ? size : sizeof defaults;
    if (!options || size < sizeof options->size)
        return;
    memset(options, 0, size);
    memcpy(options, &defaults, known);
    options->size = size;
}

#undef gradweir_options_default
void gradweir_options_default(gradweir_options *options)
{
    gradweir_options_default_sized(options, FIRST_SIZE);
}

/* A newer caller's further members must be as by default: 0. */
static gradweir_status take(const gradweir_options *given, gradweir_options *options)
{
    const uint8_t *bytes = (const uint8_t *)given;
    if (given->size < FIRST_SIZE)
        return fail(GRADWEIR_ERR_INVALID,
                    "options.size is %zu, at least %d is wanted: call gradweir_options_default",
                    given->size, FIRST_SIZE);
    for (size_t i = sizeof *options; i < given->size; i++)
        if (bytes[i])
            return fail(GRADWEIR_ERR_INVALID,
                        "options.size is %zu, this library knows %zu, and what is beyond is not 0: "
                        "the library is older than its header",
                        given->size, sizeof *options);
    *options = defaults;
    memcpy(options, given, given->size < sizeof *options ? given->size : sizeof *options);
    options->size = sizeof *options;
    return GRADWEIR_OK;
}

gradweir_status client_given(const void *argument, const char *name)
{
    return argument ? GRADWEIR_OK : fail(GRADWEIR_ERR_INVALID, "%s is NULL", name);
}

/* As transport_open would say, but before anybody waits for a server. */
static gradweir_status check_transport(const char *lanes)
{
    static const char *const known[] = {"auto", "posix", "tcp", "rc"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!lanes || strcmp(lanes, known[i]) == 0)
            return GRADWEIR_OK;
    return fail(GRADWEIR_ERR_INVALID,
                "options.transport is \"%.40s\": auto, posix, tcp or rc is wanted", lanes);
}

static gradweir_status check_memory(const gradweir_options *options)
{
    const uint64_t staging = options->staging_bytes;
    if (options->memory > GRADWEIR_MEMORY_AUTO)
        return fail(GRADWEIR_ERR_INVALID, "options.memory is %u: host, cuda or auto is wanted",
                    options->memory);
    if (options->memory_path > GRADWEIR_MEMORY_PATH_DIRECT)
        return fail(GRADWEIR_ERR_INVALID,
                    "options.memory_path is %u: auto, staging or direct is wanted",
                    options->memory_path);
    if (options->memory == GRADWEIR_MEMORY_HOST &&
        (options->memory_path != GRADWEIR_MEMORY_PATH_AUTO || options->gpu != 0))
        return fail(GRADWEIR_ERR_INVALID,
                    "options.%s is given, but options.memory is host: say cuda or auto",
                    options->gpu ? "gpu" : "memory_path");
    if (staging != 0 && (staging < UINT64_C(3) << 19 || staging > UINT64_C(1) << 30))
        return fail(GRADWEIR_ERR_INVALID,
                    "options.staging_bytes is %llu: 0, or 1.5 MiB to 1 GiB, is allowed",
                    (unsigned long long)staging);
    return GRADWEIR_OK;
}

gradweir_status client_options(const gradweir_options *given, gradweir_options *options)
{
    TRY(take(given, options));
    if (!options->address || !strchr(options->address, ':'))
        return fail(GRADWEIR_ERR_INVALID, "options.address is \"%s\": \"host:port\" is wanted",
                    options->address ? options->address : "");
    if (options->outstanding < 1 || options->outstanding > OUTSTANDING_MAX)
        return fail(GRADWEIR_ERR_INVALID, "options.outstanding is %u: 1 to %d are allowed",
                    options->outstanding, OUTSTANDING_MAX);
    if (options->role != GRADWEIR_WORKER && options->role != GRADWEIR_READER)
        return fail(GRADWEIR_ERR_INVALID, "options.role is neither worker nor reader");
    TRY(check_transport(options->transport));
    if (options->progress > GRADWEIR_PROGRESS_THREAD)
        return fail(GRADWEIR_ERR_INVALID, "options.progress is neither caller nor thread");
    if (options->feedback > GRADWEIR_FEEDBACK_OFF)
        return fail(GRADWEIR_ERR_INVALID, "options.feedback is %u: auto, on or off is wanted",
                    options->feedback);
    TRY(check_memory(options));
    if (options->ranks > RANKS_MAX || options->rank >= (options->ranks ? options->ranks : 1))
        return fail(GRADWEIR_ERR_INVALID,
                    "options.rank is %u of %u ranks: 1 to %d ranks, counted "
                    "from 0",
                    options->rank, options->ranks, RANKS_MAX);
    if (options->ranks > 1 && (options->role != GRADWEIR_WORKER || !options->group ||
                               !options->group[0] || !options->identity || !options->identity[0]))
        return fail(GRADWEIR_ERR_INVALID,
                    "options.ranks is %u: ranks are of one worker, with a "
                    "group text and an identity that all of them share",
                    options->ranks);
    if (options->keys && options->keys[0] && (options->secret_key || options->insecure))
        return fail(GRADWEIR_ERR_INVALID, "options.keys is given, and %s too: it is one of them",
                    options->secret_key ? "secret_key" : "insecure");
    return GRADWEIR_OK;
}

gradweir_status client_keys(struct gradweir_client *client, struct control_options *control,
                            struct key_table **keys)
{
    control->public_key = client->options.public_key;
    control->secret_key = client->options.secret_key;
    control->server_key = client->options.server_key;
    if (!client->options.keys || !client->options.keys[0])
        return GRADWEIR_OK;
    char owner[IDENTITY_MAX];
    snprintf(owner, sizeof owner, "%.*s", (int)strcspn(client->identity, "/"), client->identity);
    TRY(keys_read(client->options.keys, owner, keys));
    if (!owner[0]) {
        char behind[IDENTITY_MAX];
        strcpy(behind, client->identity);
        if (strlen(keys_name(*keys)) + strlen(behind) >= sizeof client->identity)
            return fail(GRADWEIR_ERR_INVALID, "options.identity: %s%s is too long",
                        keys_name(*keys), behind);
        sprintf(client->identity, "%s%s", keys_name(*keys), behind);
    }
    return keys_connect(*keys, control);
}
