/* Numbers with units, words and choices: text to value and back. */
#include "common/settings_value.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *name;
    double factor;
};

/* Largest first, so that writing finds the shortest exact form. */
static const struct unit durations[] = {{"h", 3600e9}, {"min", 60e9}, {"s", 1e9},
                                        {"ms", 1e6},   {"us", 1e3},   {"ns", 1}};
static const struct unit sizes[] = {
    {"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"B", 1}};

static bool is_number(enum setting_type type)
{
    return type == SETTING_INT || type == SETTING_FLOAT || type == SETTING_DURATION ||
           type == SETTING_SIZE;
}

static const struct unit *units_of(enum setting_type type, size_t *count)
{
    *count = type == SETTING_DURATION ? sizeof durations / sizeof *durations
             : type == SETTING_SIZE   ? sizeof sizes / sizeof *sizes
                                      : 0;
    return type == SETTING_DURATION ? durations : sizes;
}

/* Shortest decimal that reads back as the same number. */
static void write_real(double value, char *text, size_t size)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

static void write_number(enum setting_type type, double value, char *text, size_t size)
{
    size_t count;
    const struct unit *units = units_of(type, &count);
    const struct unit *unit = NULL;
    for (size_t i = 0; i < count && !unit; i++)
        if (value != 0 && fmod(value, units[i].factor) == 0)
            unit = &units[i];
    if (count == 0 && type == SETTING_FLOAT)
        write_real(value, text, size);
    else
        snprintf(text, size, "%.0f%s", unit ? value / unit->factor : value, unit ? unit->name : "");
}

void setting_range_write(const struct setting *row, char *text, size_t size)
{
    if (row->type == SETTING_BOOL) {
        snprintf(text, size, "on or off");
    } else if (row->type == SETTING_CHOICE) {
        snprintf(text, size, "one of %s", row->choices);
    } else if (row->type == SETTING_TEXT) {
        snprintf(text, size, "a text of up to %d bytes", SETTING_TEXT_MAX);
    } else {
        char low[40], high[40];
        write_number(row->type, row->low, low, sizeof low);
        write_number(row->type, row->high, high, sizeof high);
        snprintf(text, size, "%s to %s%s%s", low, high, row->word ? ", or " : "",
                 row->word ? row->word : "");
    }
}

static gradweir_status refuse(const struct setting *row, const char *text)
{
    char range[200];
    setting_range_write(row, range, sizeof range);
    return fail(GRADWEIR_ERR_INVALID, "%s is %s, not \"%.100s\"", row->name, range, text);
}

static bool read_bool(const char *text, int64_t *whole)
{
    static const char *const yes[] = {"on", "true", "yes", "1"};
    static const char *const no[] = {"off", "false", "no", "0"};
    for (unsigned i = 0; i < 4; i++)
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *whole = strcmp(text, yes[i]) == 0;
            return true;
        }
    return false;
}

static bool read_choice(const struct setting *row, const char *text, struct setting_value *value)
{
    const size_t length = strlen(text);
    const char *word = row->choices;
    for (int64_t index = 0; word; index++) {
        const char *bar = strchr(word, '|');
        const size_t word_length = bar ? (size_t)(bar - word) : strlen(word);
        if (length == word_length && length > 0 && memcmp(text, word, length) == 0) {
            value->whole = index;
            memcpy(value->text, text, length + 1);
            return true;
        }
        word = bar ? bar + 1 : NULL;
    }
    return false;
}

/* A number with its unit, without bounds yet. Durations need a unit unless 0; sizes may go without.
 */
static bool scan_number(const struct setting *row, const char *text, double *number)
{
    char *end;
    errno = 0;
    /* strtod would also take "inf", "nan", "0x1p3" and leading blanks. */
    if (!strchr("+-.0123456789", *text) || strpbrk(text, "xX"))
        return false;
    *number = strtod(text, &end);
    if (end == text || errno == ERANGE || !isfinite(*number))
        return false;
    if (*end == '\0')
        return row->type != SETTING_DURATION || *number == 0;
    size_t count;
    const struct unit *units = units_of(row->type, &count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(end, units[i].name) == 0) {
            *number *= units[i].factor;
            return true;
        }
    return false;
}

static bool read_number(const struct setting *row, const char *text, struct setting_value *value)
{
    double number;
    if (row->word && strcmp(text, row->word) == 0) {
        value->whole = SETTING_WORD;
        value->real = SETTING_WORD;
        return true;
    }
    if (!scan_number(row, text, &number) || !(number >= row->low && number <= row->high))
        return false;
    if (row->type == SETTING_FLOAT) {
        value->real = number;
        return true;
    }
    value->whole = (int64_t)(row->type == SETTING_INT ? number : round(number));
    return row->type != SETTING_INT || number == floor(number);
}

gradweir_status setting_value_read(const struct setting *row, const char *text,
                                   struct setting_value *value)
{
    /* Not a zeroed whole: a kilobyte of text need not be cleared for a number. */
    struct setting_value fresh;
    fresh.whole = 0;
    fresh.real = 0;
    fresh.text[0] = '\0';
    bool good = false;
    if (is_number(row->type)) {
        good = read_number(row, text, &fresh);
    } else if (row->type == SETTING_BOOL) {
        good = read_bool(text, &fresh.whole);
    } else if (row->type == SETTING_CHOICE) {
        good = read_choice(row, text, &fresh);
    } else if (strlen(text) <= SETTING_TEXT_MAX) {
        memcpy(fresh.text, text, strlen(text) + 1);
        good = true;
    }
    if (!good)
        return refuse(row, text);
    *value = fresh;
    return GRADWEIR_OK;
}

void setting_value_write(const struct setting *row, const struct setting_value *value, char *text,
                         size_t size)
{
    if (row->type == SETTING_TEXT || row->type == SETTING_CHOICE)
        snprintf(text, size, "%s", value->text);
    else if (row->type == SETTING_BOOL)
        snprintf(text, size, "%s", value->whole ? "on" : "off");
    else if (row->word && (row->type == SETTING_FLOAT ? value->real == SETTING_WORD
                                                      : value->whole == SETTING_WORD))
        snprintf(text, size, "%s", row->word);
    else
        write_number(row->type, row->type == SETTING_FLOAT ? value->real : (double)value->whole,
                     text, size);
}
