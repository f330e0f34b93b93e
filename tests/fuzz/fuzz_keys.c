/* A key file: whatever is accepted is a table that a listener takes, all of whose names and keys
 * are good. A libFuzzer entry; fuzz_replay.c runs it over its corpus in the normal suite. */
#include "common/keys.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void check(const struct key_table *keys)
{
    struct control_options options = control_defaults();
    keys_listen(keys, &options);
    ASSERT(keys_name_good(keys_name(keys)) && control_key_good(keys_secret(keys)));
    ASSERT(options.allowed_count <= KEYS_MAX);
    for (uint32_t i = 0; i < options.allowed_count; i++) {
        ASSERT(keys_name_good(options.allowed_names[i]) && control_key_good(options.allowed[i]));
        ASSERT(strcmp(options.allowed_names[i], keys_name(keys)) != 0);
        ASSERT(keys_public(keys, options.allowed_names[i]));
        for (uint32_t k = 0; k < i; k++)
            ASSERT(strcmp(options.allowed[i], options.allowed[k]) != 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const char *const mine[] = {"", "server", "worker-0"};
    for (int i = 0; i < 3; i++) {
        struct key_table *keys = NULL;
        char *text = calloc(1, count + 1);
        ASSERT(text);
        memcpy(text, bytes, count);
        if (keys_parse("fuzz", mine[i], text, &keys) == GRADWEIR_OK)
            check(keys);
        keys_free(keys);
        free(text);
    }
    return 0;
}
