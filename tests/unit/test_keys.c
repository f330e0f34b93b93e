#include "common/keys.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder of its own, with the keys of three. */
struct folder {
    char path[64];
};

static struct folder folder(void)
{
    struct folder made = {"/tmp/gradweir-keys-XXXXXX"};
    cr_assert_not_null(mkdtemp(made.path));
    const char *const names[] = {"server", "worker-0", "worker-1"};
    for (int i = 0; i < 3; i++)
        cr_assert_eq(keys_generate(made.path, names[i]), GRADWEIR_OK, "%s", fail_reason());
    return made;
}

static void done(const struct folder *made)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", made->path);
    cr_assert_eq(system(command), 0);
}

static void file_path(const struct folder *made, const char *name, char path[128])
{
    snprintf(path, 128, "%s/%s", made->path, name);
}

static void write_file(const struct folder *made, const char *name, const char *text)
{
    char path[128];
    file_path(made, name, path);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
    chmod(path, 0600);
}

static void refused(const char *path, const char *mine, const char *part)
{
    struct key_table *keys = NULL;
    const gradweir_status status = keys_read(path, mine, &keys);
    cr_assert(status == GRADWEIR_ERR_INVALID || status == GRADWEIR_ERR_IO, "%s: %d", part, status);
    cr_assert_null(keys);
    cr_assert(strstr(fail_reason(), part), "\"%s\" lacks \"%s\"", fail_reason(), part);
}

Test(keys, one_folder_serves_the_server_and_each_worker)
{
    const struct folder made = folder();
    struct key_table *keys;
    struct control_options options = control_defaults();
    cr_assert_eq(keys_read(made.path, "server", &keys), GRADWEIR_OK, "%s", fail_reason());
    keys_listen(keys, &options);
    cr_assert_eq(options.allowed_count, 2, "everybody but itself");
    for (uint32_t i = 0; i < 2; i++) {
        cr_assert(strncmp(options.allowed_names[i], "worker-", 7) == 0);
        cr_assert_str_eq(options.allowed[i], keys_public(keys, options.allowed_names[i]));
    }
    char server_key[KEY_TEXT_SIZE];
    strcpy(server_key, keys_public(keys, "server"));
    cr_assert_null(keys_public(keys, "worker-2"));
    keys_free(keys);
    options = control_defaults();
    cr_assert_eq(keys_read(made.path, "worker-1", &keys), GRADWEIR_OK);
    cr_assert_str_eq(keys_name(keys), "worker-1");
    cr_assert_eq(keys_connect(keys, &options), GRADWEIR_OK);
    cr_assert_str_eq(options.server_key, server_key);
    cr_assert_str_eq(options.secret_key, keys_secret(keys));
    keys_free(keys);
    done(&made);
}

Test(keys, the_public_key_in_the_file_belongs_to_the_secret_one)
{
    const struct folder made = folder();
    struct key_table *keys;
    struct control_context *context;
    struct control *control;
    struct control_options options = control_defaults();
    cr_assert_eq(keys_read(made.path, "server", &keys), GRADWEIR_OK);
    keys_listen(keys, &options);
    options.public_key = keys_public(keys, "server"); /* refused when it is another's */
    cr_assert_eq(control_context_new(&context), GRADWEIR_OK);
    cr_assert_eq(control_listen(context, &options, "127.0.0.1:0", NULL, &control), GRADWEIR_OK,
                 "%s", fail_reason());
    control_close(control);
    control_context_free(context);
    keys_free(keys);
    done(&made);
}

Test(keys, nobody_else_can_read_them_and_none_is_overwritten)
{
    const struct folder made = folder();
    struct stat there;
    char path[128], before[256] = "", after[256] = "";
    file_path(&made, "server.secret", path);
    cr_assert_eq(stat(path, &there), 0);
    cr_assert_eq(there.st_mode & 0777, 0600);
    FILE *file = fopen(path, "r");
    cr_assert_gt(fread(before, 1, sizeof before - 1, file), 40);
    cr_assert_eq(keys_generate(made.path, "server"), GRADWEIR_ERR_STATE);
    cr_assert(strstr(fail_reason(), "never overwritten"), "%s", fail_reason());
    rewind(file);
    cr_assert_gt(fread(after, 1, sizeof after - 1, file), 40);
    cr_assert_str_eq(before, after);
    fclose(file);
    unlink(
        path); /* a public key that is there is not overwritten either, nor left with a stranger */
    cr_assert_eq(keys_generate(made.path, "server"), GRADWEIR_ERR_STATE);
    cr_assert_neq(access(path, F_OK), 0);
    cr_assert_eq(keys_generate(made.path, "../worker"), GRADWEIR_ERR_INVALID);
    cr_assert_eq(keys_generate(made.path, ""), GRADWEIR_ERR_INVALID);
    done(&made);
}

Test(keys, what_others_can_read_or_write_is_refused)
{
    const struct folder made = folder();
    const struct {
        const char *name;
        mode_t mode;
    } wrong[] = {{"server.secret", 0644}, {"server.secret", 0602}, {"worker-0.public", 0662}};
    char path[128];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        file_path(&made, wrong[i].name, path);
        chmod(path, wrong[i].mode);
        refused(made.path, "server", wrong[i].name);
        refused(made.path, "server", "mode 06");
        chmod(path, 0600);
    }
    file_path(&made, "worker-0.public", path);
    chmod(path, 0644); /* public keys may be read */
    struct key_table *keys;
    cr_assert_eq(keys_read(made.path, "server", &keys), GRADWEIR_OK, "%s", fail_reason());
    keys_free(keys);
    done(&made);
}

Test(keys, a_bad_line_is_named_with_file_and_number_and_without_the_key)
{
    const struct folder made = folder();
    char path[128];
    file_path(&made, "all", path);
    const struct {
        const char *text, *part;
    } bad[] = {{"\n# mine\nsecret server tooshort\n", "all:3: the key of server is malformed"},
               {"public a 0123456789012345678901234567890123456 89\n", "all:1: a line is"},
               {"public a 0123456789012345678901234567890123~56789\n", "all:1: the key of a"},
               {"public ../a 0123456789012345678901234567890123456789\n", "is no name"},
               {"private a 0123456789012345678901234567890123456789\n", "a line is"},
               {"public a 0123456789012345678901234567890123456789\n"
                "public b 0123456789012345678901234567890123456789\n",
                "a and b have the same key"},
               {"secret a 0123456789012345678901234567890123456789\n"
                "secret server 0123456789012345678901234567890123456789\n"
                "secret server 0123456789012345678901234567890123456780\n",
                "all:3: a second secret"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(&made, "all", bad[i].text);
        refused(path, "server", bad[i].part);
        cr_assert_null(strstr(fail_reason(), "tooshort"), "a secret was told");
    }
    done(&made);
}

Test(keys, a_secret_that_was_cut_short_is_said_to_be)
{
    const struct folder made = folder();
    write_file(&made, "worker-0.secret", "# the secret key of ");
    refused(made.path, "worker-0", "worker-0.secret (20 bytes) has no whole line");
    done(&made);
}

Test(keys, whose_key_is_not_there_is_named)
{
    const struct folder made = folder();
    char path[128];
    refused(made.path, "worker-7", "no secret key of worker-7");
    refused(made.path, "", "a second secret");
    refused(made.path, "../server", "cannot have a key");
    refused("/nowhere/keys", "server", "No such file");
    struct key_table *keys;
    struct control_options options = control_defaults();
    file_path(&made, "server.public", path);
    unlink(path);
    cr_assert_eq(keys_read(made.path, "worker-0", &keys), GRADWEIR_OK);
    cr_assert_eq(keys_connect(keys, &options), GRADWEIR_ERR_INVALID);
    cr_assert(strstr(fail_reason(), "server.public"), "%s", fail_reason());
    keys_free(keys);
    done(&made);
}
