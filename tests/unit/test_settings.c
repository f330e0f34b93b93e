#include "common/settings.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct settings *fresh(void)
{
    struct settings *settings = NULL;
    cr_assert_eq(settings_new(settings_server, settings_server_count, &settings), GRADWEIR_OK);
    return settings;
}

static char *write_file(const char *text)
{
    static char path[] = "/tmp/gradweir-settings-XXXXXX";
    memcpy(path + sizeof path - 7, "XXXXXX", 6);
    const int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

static gradweir_status arguments(struct settings *settings, int count, const char *const *list)
{
    bool help;
    const gradweir_status status = settings_arguments(settings, count, list, &help);
    cr_assert(!help);
    return status;
}

Test(settings, every_name_is_unique_lower_case_and_every_default_is_valid)
{
    settings_free(fresh()); /* ASSERTs the defaults */
    for (size_t i = 0; i < settings_server_count; i++) {
        const char *name = settings_server[i].name;
        cr_assert_eq(strspn(name, "abcdefghijklmnopqrstuvwxyz_0123456789"), strlen(name));
        cr_assert_gt(strlen(settings_server[i].help), 0);
        for (size_t j = 0; j < i; j++)
            cr_assert_str_neq(name, settings_server[j].name);
    }
}

Test(settings, values_of_every_type_are_read_with_their_units)
{
    struct settings *s = fresh();
    const char *list[] = {"--shards",
                          "2",
                          "--learning-rate=2.5e-4",
                          "--lease",
                          "1500ms",
                          "--chunk_bytes",
                          "64KiB",
                          "--decay=poly",
                          "--job",
                          "two words",
                          "--insecure",
                          "--staleness-max",
                          "8",
                          "--flush_after=2min"};
    cr_assert_eq(arguments(s, sizeof list / sizeof *list, list), GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(settings_int(s, "shards"), 2);
    cr_assert_eq(settings_float(s, "learning_rate"), 2.5e-4);
    cr_assert_eq(settings_duration(s, "lease"), 1500000000);
    cr_assert_eq(settings_duration(s, "flush_after"), INT64_C(120000000000));
    cr_assert_eq(settings_size(s, "chunk_bytes"), 65536);
    cr_assert_eq(settings_choice(s, "decay"), 2);
    cr_assert_str_eq(settings_text(s, "decay"), "poly");
    cr_assert_str_eq(settings_text(s, "job"), "two words");
    cr_assert(settings_bool(s, "insecure"));
    cr_assert_eq(settings_int(s, "staleness_max"), 8);
    cr_assert(settings_given(s, "shards"));
    cr_assert(!settings_given(s, "window"));
    settings_free(s);
}

Test(settings, a_word_beside_the_numbers_reads_as_such)
{
    struct settings *s = fresh();
    cr_assert_eq(settings_int(s, "staleness_max"), SETTING_WORD);
    cr_assert_eq(settings_duration(s, "flush_after"), SETTING_WORD);
    settings_free(s);
}

Test(settings, a_bool_takes_the_next_argument_only_when_it_is_one)
{
    struct settings *s = fresh();
    const char *list[] = {"--insecure", "off", "--recheck", "--window", "4"};
    cr_assert_eq(arguments(s, 5, list), GRADWEIR_OK, "%s", fail_reason());
    cr_assert(!settings_bool(s, "insecure"));
    cr_assert(settings_bool(s, "recheck"));
    cr_assert_eq(settings_int(s, "window"), 4);
    settings_free(s);
}

Test(settings, an_unknown_name_is_answered_with_the_nearest)
{
    struct settings *s = fresh();
    const char *list[] = {"--windwo", "4"};
    cr_assert_eq(arguments(s, 2, list), GRADWEIR_ERR_INVALID);
    cr_assert_str_eq(fail_reason(),
                     "argument --windwo: there is no setting \"windwo\"; the nearest is window");
    settings_free(s);
}

Test(settings, bad_values_are_named_with_their_range_and_change_nothing)
{
    static const struct {
        const char *name, *value, *expected;
    } cases[] = {
        {"shards", "0", "shards is 1 to 64, not \"0\""},
        {"shards", "2.5", "shards is 1 to 64"},
        {"shards", "two", "shards is 1 to 64"},
        {"shards", "", "shards is 1 to 64"},
        {"staleness_max", "-1", "staleness_max is 0 to 1000000000, or off"},
        {"learning_rate", "nan", "learning_rate is 0 to 1e+06"},
        {"learning_rate", "inf", "learning_rate is 0"},
        {"learning_rate", "0x1p3", "learning_rate is 0"},
        {"lease", "2", "lease is 50ms to 1h"},
        {"lease", "2parsecs", "lease is 50ms to 1h"},
        {"chunk_bytes", "1KiB", "chunk_bytes is 4KiB to 1GiB, or auto"},
        {"decay", "ex", "decay is one of uniform|exp|poly"},
        {"decay", "", "decay is one of"},
        {"insecure", "maybe", "insecure is on or off"},
    };
    struct settings *s = fresh();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(settings_set(s, cases[i].name, cases[i].value, "here"), GRADWEIR_ERR_INVALID);
        cr_assert_not_null(strstr(fail_reason(), cases[i].expected), "%s", fail_reason());
        cr_assert(!settings_given(s, cases[i].name));
    }
    settings_free(s);
}

Test(settings, a_file_is_read_before_the_arguments_and_errors_name_its_line)
{
    struct settings *s = fresh();
    char *path = write_file("# a run\n\n window = 4 # W\nstride=2\njob = a#b\n");
    const char *list[] = {"--stride", "3", "--config", path};
    cr_assert_eq(arguments(s, 4, list), GRADWEIR_OK, "%s", fail_reason());
    cr_assert_eq(settings_int(s, "window"), 4);
    cr_assert_eq(settings_int(s, "stride"), 3);
    cr_assert_str_eq(settings_text(s, "job"), "a#b");
    unlink(path);

    path = write_file("window = 4\nstride = 9999\n");
    cr_assert_eq(settings_file(s, path), GRADWEIR_ERR_INVALID);
    cr_assert_not_null(strstr(fail_reason(), ":2: stride is 1 to 256"), "%s", fail_reason());
    unlink(path);
    path = write_file("window 4\n");
    cr_assert_eq(settings_file(s, path), GRADWEIR_ERR_INVALID);
    unlink(path);
    cr_assert_eq(settings_file(s, path), GRADWEIR_ERR_IO);
    settings_free(s);
}

Test(settings, a_missing_value_and_a_stray_word_are_refused)
{
    struct settings *s = fresh();
    const char *missing[] = {"--shards"}, *stray[] = {"shards"};
    cr_assert_eq(arguments(s, 1, missing), GRADWEIR_ERR_INVALID);
    cr_assert_eq(arguments(s, 1, stray), GRADWEIR_ERR_INVALID);
    settings_free(s);
}

Test(settings, only_live_ones_can_be_tuned)
{
    struct settings *s = fresh();
    cr_assert_eq(settings_tune(s, "learning_rate", "0.1"), GRADWEIR_OK);
    cr_assert_eq(settings_float(s, "learning_rate"), 0.1);
    cr_assert_eq(settings_tune(s, "shards", "2"), GRADWEIR_ERR_STATE);
    cr_assert_eq(settings_tune(s, "learning_rat", "2"), GRADWEIR_ERR_INVALID);
    settings_free(s);
}

Test(settings, the_nearest_live_one_to_a_wrong_name_can_be_tuned)
{
    const char *nearest = settings_nearest_live(settings_server, settings_server_count, "jab");
    const struct setting *row = settings_find(settings_server, settings_server_count, nearest);
    cr_assert(row && row->live, "%s", nearest);
    cr_assert_str_eq(settings_nearest(settings_server, settings_server_count, "jab"), "job");
}

Test(settings, what_is_printed_can_be_read_back)
{
    struct settings *s = fresh(), *again = fresh();
    const char *list[] = {"--lease", "1234567us",       "--eps", "1e-5",    "--queue_bytes_max",
                          "3GiB",    "--staleness_max", "7",     "--decay", "exp"};
    cr_assert_eq(arguments(s, 10, list), GRADWEIR_OK, "%s", fail_reason());
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    settings_print(s, out);
    fclose(out);
    char *path = write_file(text);
    cr_assert_eq(settings_file(again, path), GRADWEIR_OK, "%s", fail_reason());
    unlink(path);
    cr_assert_eq(settings_duration(again, "lease"), 1234567000);
    cr_assert_eq(settings_float(again, "eps"), 1e-5);
    cr_assert_eq(settings_size(again, "queue_bytes_max"), INT64_C(3) << 30);
    cr_assert_eq(settings_int(again, "staleness_max"), 7);
    cr_assert_eq(settings_duration(again, "flush_after"), SETTING_WORD);
    free(text);
    settings_free(s);
    settings_free(again);
}

Test(settings, help_is_asked_for_and_names_every_setting)
{
    struct settings *s = fresh();
    const char *list[] = {"--nonsense", "--help"};
    bool help = false;
    cr_assert_eq(settings_arguments(s, 2, list, &help), GRADWEIR_OK);
    cr_assert(help);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    settings_print_help(settings_server, settings_server_count, out);
    fclose(out);
    for (size_t i = 0; i < settings_server_count; i++)
        cr_assert_not_null(strstr(text, settings_server[i].name));
    free(text);
    settings_free(s);
}

Test(settings, a_getter_of_an_unknown_name_is_our_own_mistake, .signal = SIGABRT)
{
    settings_int(fresh(), "no_such_setting");
}

Test(settings, a_getter_of_the_wrong_type_is_our_own_mistake, .signal = SIGABRT)
{
    settings_int(fresh(), "learning_rate");
}
