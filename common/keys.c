/* Reads key files into a table. */
#include "common/keys.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 128 << 10, PATH_BYTES = 4096 };

struct key_table {
    char name[IDENTITY_MAX];
    char secret[KEY_TEXT_SIZE];
    uint32_t secrets; /* seen in files, whoever's */
    uint32_t count;
    char names[KEYS_MAX][IDENTITY_MAX];
    char keys[KEYS_MAX][KEY_TEXT_SIZE];
    const char *allowed_names[KEYS_MAX], *allowed[KEYS_MAX];
    uint32_t allowed_count;
};

/* Where a line stands, for complaints. */
struct place {
    const char *path;
    uint32_t line;
};

bool keys_name_good(const char *text)
{
    const size_t length = strlen(text);
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)text[i]) && (i == 0 || !strchr("._-", text[i])))
            return false;
    return length > 0 && length < IDENTITY_MAX;
}

static bool is_key(const char *text)
{
    return strlen(text) == KEY_TEXT_SIZE - 1 && control_key_good(text);
}

static gradweir_status add_public(struct key_table *keys, const char *name, const char *key,
                                  const struct place *place)
{
    for (uint32_t i = 0; i < keys->count; i++)
        if (strcmp(keys->keys[i], key) == 0)
            return fail(GRADWEIR_ERR_INVALID, "%s:%u: %s and %s have the same key", place->path,
                        place->line, keys->names[i], name);
    if (keys->count == KEYS_MAX)
        return fail(GRADWEIR_ERR_INVALID, "%s:%u: more than %d keys", place->path, place->line,
                    KEYS_MAX);
    strcpy(keys->names[keys->count], name);
    strcpy(keys->keys[keys->count++], key);
    return GRADWEIR_OK;
}

/* Only the secret that is asked for is kept; whoever asks for any gets the first, and an error when
 * there is a second. */
static gradweir_status add_secret(struct key_table *keys, const char *mine, const char *name,
                                  const char *key, const struct place *place)
{
    if (mine[0] && strcmp(mine, name) != 0)
        return GRADWEIR_OK;
    if (keys->secret[0])
        return fail(GRADWEIR_ERR_INVALID,
                    "%s:%u: a second secret, of %s after %s: say whose is meant (gradweirctl: "
                    "--identity NAME)",
                    place->path, place->line, name, keys->name);
    strcpy(keys->name, name);
    strcpy(keys->secret, key);
    return GRADWEIR_OK;
}

static gradweir_status read_line(struct key_table *keys, const char *mine, char *line,
                                 const struct place *place)
{
    static const char *const blank = " \t\r";
    char *rest = NULL;
    const char *kind = strtok_r(line, blank, &rest);
    if (!kind || kind[0] == '#')
        return GRADWEIR_OK;
    const char *name = strtok_r(NULL, blank, &rest), *key = strtok_r(NULL, blank, &rest);
    const bool is_secret = strcmp(kind, "secret") == 0;
    if (!key || strtok_r(NULL, blank, &rest) || (!is_secret && strcmp(kind, "public") != 0))
        return fail(GRADWEIR_ERR_INVALID,
                    "%s:%u: a line is \"public NAME KEY\" or \"secret NAME KEY\"", place->path,
                    place->line);
    if (!keys_name_good(name))
        return fail(GRADWEIR_ERR_INVALID,
                    "%s:%u: \"%.80s\" is no name: 1 to %d letters, digits and . _ -", place->path,
                    place->line, name, IDENTITY_MAX - 1);
    if (!is_key(key)) /* the key itself is not told: it may be a secret with a slip */
        return fail(GRADWEIR_ERR_INVALID,
                    "%s:%u: the key of %s is malformed: Z85 text of %d characters is wanted (this "
                    "has %zu)",
                    place->path, place->line, name, KEY_TEXT_SIZE - 1, strlen(key));
    return is_secret ? add_secret(keys, mine, name, key, place)
                     : add_public(keys, name, key, place);
}

static gradweir_status check_mode(const char *path, const struct stat *file, bool secret)
{
    const mode_t mode = file->st_mode & 0777;
    const mode_t wrong = !secret ? 022 : file->st_uid == 0 ? 037 : 077;
    if (mode & wrong)
        return fail(GRADWEIR_ERR_INVALID,
                    "%s: mode %04o lets others %s it: it must be 0600 (chmod 600)", path,
                    (unsigned)mode, secret ? "read or write" : "write");
    return GRADWEIR_OK;
}

static bool has_secret(const char *text)
{
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += strspn(line, "\n \t\r");
        if (strncmp(line, "secret", 6) == 0)
            return true;
    }
    return false;
}

static gradweir_status read_text(struct key_table *keys, const char *path, const char *mine,
                                 char *text)
{
    struct place place = {.path = path};
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        place.line++;
        TRY(read_line(keys, mine, line, &place));
    }
    return GRADWEIR_OK;
}

static gradweir_status read_open(struct key_table *keys, int fd, const char *path, const char *mine)
{
    static _Thread_local char text[FILE_BYTES_MAX + 1];
    struct stat file;
    size_t count = 0;
    ssize_t got = 1;
    if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode))
        return fail(GRADWEIR_ERR_INVALID, "%s is not a file", path);
    while (count < FILE_BYTES_MAX && (got = read(fd, text + count, FILE_BYTES_MAX - count)) > 0)
        count += (size_t)got;
    text[count] = 0;
    gradweir_status status = GRADWEIR_OK;
    if (got < 0)
        status = fail(GRADWEIR_ERR_IO, "%s: %s", path, strerror(errno));
    else if (count == FILE_BYTES_MAX || strlen(text) != count)
        status = fail(GRADWEIR_ERR_INVALID, "%s is no key file: it is %s", path,
                      count == FILE_BYTES_MAX ? "too long" : "not text");
    if (status == GRADWEIR_OK)
        status = check_mode(path, &file, has_secret(text));
    if (status == GRADWEIR_OK)
        status = read_text(keys, path, mine, text);
    explicit_bzero(text, sizeof text);
    return status;
}

static gradweir_status read_file(struct key_table *keys, const char *path, const char *mine)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail(GRADWEIR_ERR_IO, "%s: %s", path, strerror(errno));
    const gradweir_status status = read_open(keys, fd, path, mine);
    close(fd);
    return status;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), n = strlen(end);
    return length > n && strcmp(text + length - n, end) == 0;
}

/* Whether this file of the folder is read: all public ones, and of the secret ones mine. */
static bool is_wanted(const char *file, const char *mine)
{
    char own[IDENTITY_MAX + 8];
    if (file[0] == '.')
        return false;
    if (!mine[0] || !ends_with(file, ".secret"))
        return ends_with(file, ".public") || ends_with(file, ".secret");
    snprintf(own, sizeof own, "%s.secret", mine);
    return strcmp(file, own) == 0;
}

static gradweir_status read_folder(struct key_table *keys, const char *path, const char *mine)
{
    DIR *folder = opendir(path);
    gradweir_status status = GRADWEIR_OK;
    if (!folder)
        return fail(GRADWEIR_ERR_IO, "%s: %s", path, strerror(errno));
    for (const struct dirent *entry; status == GRADWEIR_OK && (entry = readdir(folder));) {
        char file[PATH_BYTES];
        if (!is_wanted(entry->d_name, mine))
            continue;
        if ((size_t)snprintf(file, sizeof file, "%s/%s", path, entry->d_name) >= sizeof file)
            status = fail(GRADWEIR_ERR_INVALID, "%.200s...: the path is too long", path);
        else
            status = read_file(keys, file, mine);
    }
    closedir(folder);
    return status;
}

static gradweir_status check_mine(const char *mine)
{
    if (mine[0] && !keys_name_good(mine))
        return fail(GRADWEIR_ERR_INVALID,
                    "identity \"%.80s\" cannot have a key: a name is 1 to %d letters, digits and "
                    ". _ -",
                    mine, IDENTITY_MAX - 1);
    return GRADWEIR_OK;
}

/* Shards get keys of their own only when they are processes of their own, which is easily missed.
 */
static const char *whose(const char *mine)
{
    return strncmp(mine, "shard-", 6) == 0
               ? "; every shard in a process of its own has one, under --supervise too"
               : "";
}

/* The file may be there, and yet there was no key in it. */
static gradweir_status check_whole(const char *path, const char *mine)
{
    char file[1100];
    struct stat there;
    snprintf(file, sizeof file, "%.1000s/%s.secret", path, mine);
    if (stat(file, &there) != 0)
        return GRADWEIR_OK;
    return fail(
        GRADWEIR_ERR_INVALID,
        "keys: %s (%lld bytes) has no whole line \"secret %s KEY\": it was cut short. Take it "
        "from where it was made, or remove both of its halves and make a new pair "
        "(gradweir-server keygen)",
        file, (long long)there.st_size, mine);
}

static gradweir_status read_all(struct key_table *keys, const char *path, const char *mine)
{
    struct stat there;
    TRY(check_mine(mine));
    if (stat(path, &there) != 0)
        return fail(GRADWEIR_ERR_IO, "keys: %s: %s", path, strerror(errno));
    const bool is_folder = S_ISDIR(there.st_mode);
    TRY(is_folder ? read_folder(keys, path, mine) : read_file(keys, path, mine));
    if (!keys->secret[0] && is_folder && mine[0])
        TRY(check_whole(path, mine));
    if (!keys->secret[0])
        return fail(GRADWEIR_ERR_INVALID,
                    "keys: %s has no secret key%s%s (%s%s%s): `gradweir-server keygen %s %s` makes "
                    "one%s",
                    path, mine[0] ? " of " : "", mine, is_folder ? "a file " : "a line \"secret ",
                    mine[0] ? mine : "NAME", is_folder ? ".secret" : " KEY\"",
                    is_folder ? path : "DIR", mine[0] ? mine : "NAME", whose(mine));
    return GRADWEIR_OK;
}

/* What was read becomes a table, or nothing at all. */
static gradweir_status finish(struct key_table *made, gradweir_status status,
                              struct key_table **keys)
{
    if (status != GRADWEIR_OK) {
        keys_free(made);
        return status;
    }
    for (uint32_t i = 0; i < made->count; i++) {
        if (strcmp(made->names[i], made->name) == 0)
            continue;
        made->allowed_names[made->allowed_count] = made->names[i];
        made->allowed[made->allowed_count++] = made->keys[i];
    }
    *keys = made;
    return GRADWEIR_OK;
}

gradweir_status keys_read(const char *path, const char *mine, struct key_table **keys)
{
    struct key_table *made = calloc(1, sizeof *made);
    if (!made)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a table of keys");
    return finish(made, read_all(made, path, mine), keys);
}

gradweir_status keys_parse(const char *path, const char *mine, char *text, struct key_table **keys)
{
    TRY(check_mine(mine));
    struct key_table *made = calloc(1, sizeof *made);
    if (!made)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for a table of keys");
    gradweir_status status = read_text(made, path, mine, text);
    if (status == GRADWEIR_OK && !made->secret[0])
        status = fail(GRADWEIR_ERR_INVALID, "%s has no secret key%s%s", path, mine[0] ? " of " : "",
                      mine);
    return finish(made, status, keys);
}

void keys_free(struct key_table *keys)
{
    if (!keys)
        return;
    explicit_bzero(keys, sizeof *keys);
    free(keys);
}

const char *keys_name(const struct key_table *keys)
{
    return keys->name;
}

const char *keys_secret(const struct key_table *keys)
{
    return keys->secret;
}

const char *keys_public(const struct key_table *keys, const char *name)
{
    for (uint32_t i = 0; i < keys->count; i++)
        if (strcmp(keys->names[i], name) == 0)
            return keys->keys[i];
    return NULL;
}

void keys_listen(const struct key_table *keys, struct control_options *options)
{
    options->secret_key = keys->secret;
    options->allowed = keys->allowed;
    options->allowed_names = keys->allowed_names;
    options->allowed_count = keys->allowed_count;
}

gradweir_status keys_connect(const struct key_table *keys, struct control_options *options)
{
    options->secret_key = keys->secret;
    options->server_key = keys_public(keys, KEYS_SERVER);
    if (!options->server_key)
        return fail(GRADWEIR_ERR_INVALID,
                    "keys: the server's public key is not there: a line \"public %s KEY\" (its "
                    "file is %s.public)",
                    KEYS_SERVER, KEYS_SERVER);
    return GRADWEIR_OK;
}
