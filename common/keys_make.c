/* Makes key pairs and writes them to files that nobody else can read. */
#include "common/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static gradweir_status write_all(int fd, const char *path, const char *text)
{
    const size_t length = strlen(text);
    if (write(fd, text, length) != (ssize_t)length || fsync(fd) != 0)
        return fail(GRADWEIR_ERR_IO, "%s: %s", path, strerror(errno));
    return GRADWEIR_OK;
}

/* A file that was there stays as it was. */
static gradweir_status write_new(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EEXIST)
        return fail(GRADWEIR_ERR_STATE, "%s is there already: keys are never overwritten", path);
    if (fd < 0)
        return fail(GRADWEIR_ERR_IO, "%s: %s", path, strerror(errno));
    gradweir_status status = write_all(fd, path, text);
    if (close(fd) != 0 && status == GRADWEIR_OK)
        status = fail(GRADWEIR_ERR_IO, "%s: %s", path, strerror(errno));
    if (status != GRADWEIR_OK)
        unlink(path);
    return status;
}

static gradweir_status write_pair(const char *public_path, const char *secret_path,
                                  const char *name)
{
    char public_key[KEY_TEXT_SIZE], secret_key[KEY_TEXT_SIZE], text[256];
    if (access(public_path, F_OK) == 0)
        return fail(GRADWEIR_ERR_STATE, "%s is there already: keys are never overwritten",
                    public_path);
    TRY(control_keys(public_key, secret_key));
    snprintf(text, sizeof text, "# %s alone may read this file.\nsecret %s %s\n", name, name,
             secret_key);
    gradweir_status status = write_new(secret_path, text);
    explicit_bzero(secret_key, sizeof secret_key);
    explicit_bzero(text, sizeof text);
    TRY(status);
    snprintf(text, sizeof text, "public %s %s\n", name, public_key);
    status = write_new(public_path, text);
    if (status != GRADWEIR_OK)
        unlink(secret_path);
    return status;
}

gradweir_status keys_generate(const char *folder, const char *name)
{
    char public_path[PATH_BYTES], secret_path[PATH_BYTES];
    if (!keys_name_good(name))
        return fail(GRADWEIR_ERR_INVALID,
                    "\"%.80s\" is no name for a key: 1 to %d letters, digits and . _ - (not in "
                    "front)",
                    name, IDENTITY_MAX - 1);
    if ((size_t)snprintf(public_path, sizeof public_path, "%s/%s.public", folder, name) >=
            sizeof public_path ||
        (size_t)snprintf(secret_path, sizeof secret_path, "%s/%s.secret", folder, name) >=
            sizeof secret_path)
        return fail(GRADWEIR_ERR_INVALID, "%.200s...: the path is too long", folder);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return fail(GRADWEIR_ERR_IO, "%s: %s", folder, strerror(errno));
    return write_pair(public_path, secret_path, name);
}

/* One that is there already makes the whole command fail, so it must leave nothing of the others.
 */
static gradweir_status none_is_there(const char *folder, int count, const char *const *names)
{
    static const char *const kinds[] = {"public", "secret"};
    char path[PATH_BYTES];
    for (int i = 0; i < 2 * count; i++) {
        const int length =
            snprintf(path, sizeof path, "%s/%s.%s", folder, names[i / 2], kinds[i % 2]);
        if ((size_t)length < sizeof path && access(path, F_OK) == 0)
            return fail(GRADWEIR_ERR_STATE, "%s is there already: keys are never overwritten",
                        path);
    }
    return GRADWEIR_OK;
}

int keys_main(const char *program, int count, const char *const *arguments)
{
    if (count < 2 || arguments[0][0] == '-') {
        fprintf(stderr,
                "%s keygen DIR NAME...    makes NAME.secret and NAME.public in DIR\n"
                "  server    the coordinator\n"
                "  shard-N   a shard in a process of its own\n"
                "  others    workers; gradweir-train's are worker-0, worker-1, ...\n"
                "Each machine needs its own NAME.secret and server.public; the server needs its "
                "own\nsecret and everybody's NAME.public.\n",
                program);
        return 2;
    }
    if (none_is_there(arguments[0], count - 1, arguments + 1) != GRADWEIR_OK) {
        fprintf(stderr, "%s: keygen: %s\n", program, fail_reason());
        return 2;
    }
    for (int i = 1; i < count; i++) {
        if (keys_generate(arguments[0], arguments[i]) != GRADWEIR_OK) {
            fprintf(stderr, "%s: keygen: %s\n", program, fail_reason());
            return 2;
        }
        printf("%s/%s.secret\n%s/%s.public\n", arguments[0], arguments[i], arguments[0],
               arguments[i]);
    }
    return 0;
}
