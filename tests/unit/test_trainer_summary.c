#include "client/trainer/train_summary.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* The options part of the summary for a command line of at most 15 words; to be freed. */
static char *options_json(int argc, const char *const *words)
{
    struct train_settings settings;
    struct train_reason reason;
    char *argv[16] = {NULL}, *text = NULL;
    size_t size = 0;
    for (int i = 0; i < argc; i++)
        argv[i + 1] = strdup(words[i]);
    cr_assert_eq(train_settings_parse(&settings, argc + 1, argv, &reason), GRADWEIR_OK);
    FILE *file = open_memstream(&text, &size);
    train_settings_json(&settings, file);
    fclose(file);
    for (int i = 0; i < argc; i++)
        free(argv[i + 1]);
    return text;
}

Test(train_summary, what_servers_chose_for_themselves_is_null)
{
    static const char *const names[] = {"shards", "window",          "stride",     "queue",
                                        "mode",   "server_settings", "lr",         "anneal_steps",
                                        "record", "adam_eps",        "server_log", "grad_norm"};
    static const char *const words[] = {"--servers", "127.0.0.1:7070", "--workers", "2"};
    char *theirs = options_json(4, words), *own = options_json(2, words + 2), part[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(part, sizeof part, "\"%s\": null,", names[i]);
        cr_expect_not_null(strstr(theirs, part), "%s", part);
    }
    cr_expect_not_null(strstr(theirs, "\"workers\": 2,"));
    cr_expect_not_null(strstr(theirs, "\"gamma\": 0.99,"));
    cr_expect_not_null(strstr(own, "\"window\": 2,"));
    cr_expect_not_null(strstr(own, "\"lr\": 0.00025,"));
    free(theirs);
    free(own);
}

Test(train_summary, texts_are_escaped_as_json_has_them)
{
    static const char *const words[] = {"--record", "a \"b\" \\c\nd"};
    char *text = options_json(2, words);
    cr_expect_not_null(strstr(text, "\"record\": \"a \\\"b\\\" \\\\c\\u000ad\","), "%s", text);
    free(text);
}
