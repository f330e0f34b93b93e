/* Settings: one table says name, type, default, bounds and help of each; file, command line, help
 * and checks read it.
 *
 * A settings object holds one value for each row of a table. Values come from the defaults, then a
 * file of `name = value` lines (# starts a comment), then arguments (`--name value`,
 * `--name=value`; - and _ are the same in names; a bool alone means on), then, for live ones, from
 * settings_tune. Each value knows where it came from. A bad name or value is refused with file:line
 * or the argument, the range, and the nearest name. Getters ASSERT that the name is in the table
 * and of that type: a wrong one is our own mistake.
 *
 * Written values:  bool on|off   int 42   float 2.5e-4   duration 250us 50ms 3s 2min   size 4096
 * 64KiB 2GiB choice one of its words   text anything up to 1023 bytes A row may have one `word`
 * beside its numbers ("auto", "off"); it reads as SETTING_WORD. */
#ifndef GRADWEIR_COMMON_SETTINGS_H
#define GRADWEIR_COMMON_SETTINGS_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum setting_type {
    SETTING_BOOL,
    SETTING_INT,
    SETTING_FLOAT,
    SETTING_DURATION, /* ns */
    SETTING_SIZE,     /* bytes */
    SETTING_CHOICE,
    SETTING_TEXT
};

#define SETTING_TEXT_MAX 1023
#define SETTING_WORD     (-1) /* what a number reads as when its row's word was given */

/* A row. Numbers (also those of durations and sizes) are kept in double bounds: exact to 2^53. */
struct setting {
    const char *name; /* lower case, _ between words */
    enum setting_type type;
    bool live;              /* may be changed by settings_tune while running */
    const char *by_default; /* as one would write it in a file */
    double low, high;       /* bounds, both allowed */
    const char *word;       /* "auto", "off", or NULL */
    const char *choices;    /* "posix|tcp|rc" for SETTING_CHOICE */
    const char *help;       /* one sentence without its full stop */
};

/* The rows of gradweir-server (common/settings_table.c). Add a setting by adding a row. */
extern const struct setting settings_server[];
extern const size_t settings_server_count;

/* The row of that name (- and _ are the same), or NULL; the name that is nearest to a wrong one. */
const struct setting *settings_find(const struct setting *table, size_t count, const char *name);
const char *settings_nearest(const struct setting *table, size_t count, const char *name);

/* The nearest of those that may be tuned while running. */
const char *settings_nearest_live(const struct setting *table, size_t count, const char *name);

struct settings;

/* A settings object with every default of the table, which must outlive it. ASSERTs that the
 * defaults are valid. */
gradweir_status settings_new(const struct setting *table, size_t count, struct settings **settings);
void settings_free(struct settings *settings);

/* One value, as text; `origin` ("line 3 of x.conf") begins the reason of a failure. ERR_INVALID. */
gradweir_status settings_set(struct settings *settings, const char *name, const char *value,
                             const char *origin);

/* A file of `name = value` lines. ERR_IO when it cannot be read, ERR_INVALID naming file:line. */
gradweir_status settings_file(struct settings *settings, const char *path);

/* A command line without its program name (main casts its argv to the const type). When the table
 * has a row `config`, that file is read first, so arguments win. *help_wanted is true when --help
 * or -h was among them; the rest is then not looked at. */
gradweir_status settings_arguments(struct settings *settings, int count,
                                   const char *const *arguments, bool *help_wanted);

/* As settings_set, for live rows only; ERR_STATE for others. */
gradweir_status settings_tune(struct settings *settings, const char *name, const char *value);

bool settings_known(const struct settings *settings, const char *name);

/* Whether anybody gave this value, so that a preset leaves it alone. */
bool settings_given(const struct settings *settings, const char *name);

bool settings_bool(const struct settings *settings, const char *name);
int64_t settings_int(const struct settings *settings, const char *name);
double settings_float(const struct settings *settings, const char *name);
int64_t settings_duration(const struct settings *settings, const char *name); /* ns */
int64_t settings_size(const struct settings *settings, const char *name);     /* bytes */

/* The number of the chosen word in the row's `choices`, from 0; its text by settings_text. */
uint32_t settings_choice(const struct settings *settings, const char *name);

/* TEXT and CHOICE. Valid until the value is set again. */
const char *settings_text(const struct settings *settings, const char *name);

/* The whole table as help; every value in force, `name = value   # where from`, readable by
 * settings_file. */
void settings_print_help(const struct setting *table, size_t count, FILE *out);
void settings_print(const struct settings *settings, FILE *out);

#endif
