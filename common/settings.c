/* Keeps one value for each row of a table, reads files and command lines into them, prints them. */
#include "common/settings.h"

#include "common/nearest.h"
#include "common/settings_value.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 63
#define ORIGIN_MAX     127

struct kept {
    struct setting_value value;
    char origin[ORIGIN_MAX + 1]; /* "" while it is the default */
};

struct settings {
    const struct setting *table;
    size_t count;
    struct kept kept[];
};

gradweir_status settings_new(const struct setting *table, size_t count, struct settings **settings)
{
    struct settings *fresh = calloc(1, sizeof *fresh + count * sizeof fresh->kept[0]);
    if (!fresh)
        return fail(GRADWEIR_ERR_NO_MEMORY, "no memory for %zu settings", count);
    fresh->table = table;
    fresh->count = count;
    for (size_t i = 0; i < count; i++)
        ASSERT(setting_value_read(&table[i], table[i].by_default, &fresh->kept[i].value) ==
               GRADWEIR_OK);
    *settings = fresh;
    return GRADWEIR_OK;
}

void settings_free(struct settings *settings)
{
    free(settings);
}

/* Names are equal when they differ in - and _ only. */
static bool same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b))
            return false;
    return *a == *b;
}

const struct setting *settings_find(const struct setting *table, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (same_name(table[i].name, name))
            return &table[i];
    return NULL;
}

const char *settings_nearest(const struct setting *table, size_t count, const char *name)
{
    const char *nearest = table[0].name;
    for (size_t i = 1; i < count; i++)
        if (nearest_distance(name, table[i].name) < nearest_distance(name, nearest))
            nearest = table[i].name;
    return nearest;
}

const char *settings_nearest_live(const struct setting *table, size_t count, const char *name)
{
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++)
        if (table[i].live &&
            (!nearest || nearest_distance(name, table[i].name) < nearest_distance(name, nearest)))
            nearest = table[i].name;
    return nearest ? nearest : "none";
}

static const struct setting *find(const struct settings *settings, const char *name)
{
    return settings_find(settings->table, settings->count, name);
}

static gradweir_status unknown(const struct settings *settings, const char *name,
                               const char *origin)
{
    return fail(GRADWEIR_ERR_INVALID, "%s: there is no setting \"%.60s\"; the nearest is %s",
                origin, name, settings_nearest(settings->table, settings->count, name));
}

static gradweir_status keep(struct settings *settings, const struct setting *row, const char *value,
                            const char *origin)
{
    struct kept *kept = &settings->kept[row - settings->table];
    const gradweir_status status = setting_value_read(row, value, &kept->value);
    if (status != GRADWEIR_OK)
        return fail(status, "%s: %s", origin, fail_reason());
    snprintf(kept->origin, sizeof kept->origin, "%s", origin);
    return GRADWEIR_OK;
}

gradweir_status settings_set(struct settings *settings, const char *name, const char *value,
                             const char *origin)
{
    const struct setting *row = find(settings, name);
    return row ? keep(settings, row, value, origin) : unknown(settings, name, origin);
}

gradweir_status settings_tune(struct settings *settings, const char *name, const char *value)
{
    const struct setting *row = find(settings, name);
    if (!row)
        return unknown(settings, name, "tune");
    if (!row->live)
        return fail(GRADWEIR_ERR_STATE, "tune: %s is fixed at start", row->name);
    return keep(settings, row, value, "tune");
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        text[--length] = '\0';
    return text;
}

/* A # starts a comment at the line's beginning or after a blank, so that texts may hold one. */
static void cut_comment(char *line)
{
    for (char *c = line; *c; c++)
        if (*c == '#' && (c == line || isspace((unsigned char)c[-1]))) {
            *c = '\0';
            return;
        }
}

static gradweir_status take_line(struct settings *settings, char *line, const char *origin)
{
    cut_comment(line);
    char *name = trim(line);
    if (*name == '\0')
        return GRADWEIR_OK;
    char *equals = strchr(name, '=');
    if (!equals)
        return fail(GRADWEIR_ERR_INVALID, "%s: not of the form name = value", origin);
    *equals = '\0';
    name = trim(name);
    if (same_name(name, "config"))
        return fail(GRADWEIR_ERR_INVALID,
                    "%s: a file cannot name another: give config on the command line", origin);
    return settings_set(settings, name, trim(equals + 1), origin);
}

/* Some editors put a byte-order mark in front of UTF-8. */
static size_t mark_bytes(const char *line)
{
    return strncmp(line, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

gradweir_status settings_file(struct settings *settings, const char *path)
{
    char line[SETTING_TEXT_MAX + 200];
    char origin[ORIGIN_MAX + 1];
    FILE *file = fopen(path, "r");
    if (!file)
        return fail(GRADWEIR_ERR_IO, "%s: %s", path, strerror(errno));
    gradweir_status status = GRADWEIR_OK;
    for (unsigned number = 1; status == GRADWEIR_OK && fgets(line, sizeof line, file); number++) {
        snprintf(origin, sizeof origin, "%.100s:%u", path, number);
        if (!strchr(line, '\n') && !feof(file))
            status = strlen(line) + 1 < sizeof line
                         ? fail(GRADWEIR_ERR_INVALID, "%s: there is a NUL byte in it", origin)
                         : fail(GRADWEIR_ERR_INVALID, "%s: the line is too long", origin);
        else
            status = take_line(settings, line + (number == 1 ? mark_bytes(line) : 0), origin);
    }
    if (status == GRADWEIR_OK && ferror(file))
        status = fail(GRADWEIR_ERR_IO, "%s: cannot be read", path);
    fclose(file);
    return status;
}

/* `--name=value` as name and value; `--name` as name and NULL. False when it is neither. */
static bool split(const char *argument, char name[NAME_MAX_BYTES + 1], const char **value)
{
    if (argument[0] != '-' || argument[1] != '-' || argument[2] == '\0')
        return false;
    const char *equals = strchr(argument, '=');
    const size_t length = equals ? (size_t)(equals - argument - 2) : strlen(argument + 2);
    if (length == 0 || length > NAME_MAX_BYTES)
        return false;
    memcpy(name, argument + 2, length);
    name[length] = '\0';
    *value = equals ? equals + 1 : NULL;
    return true;
}

/* One argument, and the next when that is its value: *used says how many were taken. */
static gradweir_status take_argument(struct settings *settings, int left,
                                     const char *const *arguments, const char *only, int *used)
{
    char name[NAME_MAX_BYTES + 1], origin[ORIGIN_MAX + 1];
    const char *value;
    snprintf(origin, sizeof origin, "argument %.80s", arguments[0]);
    if (!split(arguments[0], name, &value))
        return fail(GRADWEIR_ERR_INVALID, "%s: settings are given as --name value", origin);
    const struct setting *row = find(settings, name);
    if (!row)
        return unknown(settings, name, origin);
    *used = 1;
    struct setting_value ignored;
    if (!value && row->type == SETTING_BOOL) {
        const bool follows =
            left > 1 && setting_value_read(row, arguments[1], &ignored) == GRADWEIR_OK;
        value = follows ? arguments[1] : "on";
        *used = follows ? 2 : 1;
    } else if (!value) {
        if (left < 2)
            return fail(GRADWEIR_ERR_INVALID, "%s: its value is missing", origin);
        value = arguments[1];
        *used = 2;
    }
    if (only && !same_name(only, row->name))
        return GRADWEIR_OK;
    return keep(settings, row, value, origin);
}

static gradweir_status take_all(struct settings *settings, int count, const char *const *arguments,
                                const char *only)
{
    for (int i = 0, used = 0; i < count; i += used)
        TRY(take_argument(settings, count - i, arguments + i, only, &used));
    return GRADWEIR_OK;
}

gradweir_status settings_arguments(struct settings *settings, int count,
                                   const char *const *arguments, bool *help_wanted)
{
    *help_wanted = false;
    for (int i = 0; i < count; i++)
        if (strcmp(arguments[i], "--help") == 0 || strcmp(arguments[i], "-h") == 0) {
            *help_wanted = true;
            return GRADWEIR_OK;
        }
    if (find(settings, "config")) {
        TRY(take_all(settings, count, arguments, "config"));
        const char *path = settings_text(settings, "config");
        if (*path)
            TRY(settings_file(settings, path));
    }
    return take_all(settings, count, arguments, NULL);
}

bool settings_known(const struct settings *settings, const char *name)
{
    return find(settings, name) != NULL;
}

static const struct kept *get(const struct settings *settings, const char *name,
                              enum setting_type type)
{
    const struct setting *row = find(settings, name);
    ASSERT(row != NULL && row->type == type);
    return &settings->kept[row - settings->table];
}

bool settings_given(const struct settings *settings, const char *name)
{
    const struct setting *row = find(settings, name);
    ASSERT(row != NULL);
    return settings->kept[row - settings->table].origin[0] != '\0';
}

bool settings_bool(const struct settings *settings, const char *name)
{
    return get(settings, name, SETTING_BOOL)->value.whole != 0;
}

int64_t settings_int(const struct settings *settings, const char *name)
{
    return get(settings, name, SETTING_INT)->value.whole;
}

double settings_float(const struct settings *settings, const char *name)
{
    return get(settings, name, SETTING_FLOAT)->value.real;
}

int64_t settings_duration(const struct settings *settings, const char *name)
{
    return get(settings, name, SETTING_DURATION)->value.whole;
}

int64_t settings_size(const struct settings *settings, const char *name)
{
    return get(settings, name, SETTING_SIZE)->value.whole;
}

uint32_t settings_choice(const struct settings *settings, const char *name)
{
    return (uint32_t)get(settings, name, SETTING_CHOICE)->value.whole;
}

const char *settings_text(const struct settings *settings, const char *name)
{
    const struct setting *row = find(settings, name);
    ASSERT(row != NULL && (row->type == SETTING_TEXT || row->type == SETTING_CHOICE));
    return settings->kept[row - settings->table].value.text;
}

void settings_print_help(const struct setting *table, size_t count, FILE *out)
{
    for (size_t i = 0; i < count; i++) {
        char range[200];
        setting_range_write(&table[i], range, sizeof range);
        fprintf(out, "  --%-20s %s\n  %22s %s; default %s%s\n", table[i].name, table[i].help, "",
                range, *table[i].by_default ? table[i].by_default : "none",
                table[i].live ? "; may be tuned while running" : "");
    }
}

void settings_print(const struct settings *settings, FILE *out)
{
    for (size_t i = 0; i < settings->count; i++) {
        char text[SETTING_TEXT_MAX + 1];
        const struct kept *kept = &settings->kept[i];
        setting_value_write(&settings->table[i], &kept->value, text, sizeof text);
        /* The file that was read is not read again with what came of it. */
        fprintf(out, "%s%s = %s # %s\n", same_name(settings->table[i].name, "config") ? "# " : "",
                settings->table[i].name, text, kept->origin[0] ? kept->origin : "default");
    }
}
