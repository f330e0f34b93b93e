/* Law settings as "name = value" lines: how they travel in MAP and TUNE records. One table, in the
 * order of writing; reals are written in hexadecimal, so that they read back to the same bits. */
#include "common/codec.h"
#include "common/ledger.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum type { COUNT32, COUNT64, WHOLE, REAL, FLAG, CHOICE };

struct row {
    const char *name;
    enum type type;
    bool optimizer; /* lies in struct optimizer_options, not in law_settings */
    bool live;      /* a TUNE record may change it */
    size_t offset;
    const char *words; /* of a CHOICE, "a|b|c", in the order of its enum */
};

#define LAW(name, type, live, member)                                                              \
    {                                                                                              \
        name, type, false, live, offsetof(struct law_settings, member), NULL                       \
    }
#define WORD(name, live, member, words)                                                            \
    {                                                                                              \
        name, CHOICE, false, live, offsetof(struct law_settings, member), words                    \
    }
#define OPTIMIZER(name, type, member)                                                              \
    {                                                                                              \
        name, type, true, false, offsetof(struct optimizer_options, member), NULL                  \
    }

static const struct row rows[] = {
    LAW("window", COUNT32, true, window),
    LAW("stride", COUNT32, true, stride),
    LAW("staleness_max", WHOLE, true, staleness_max),
    WORD("decay", true, decay, "uniform|exp|poly"),
    LAW("decay_beta", REAL, true, decay_beta),
    LAW("decay_exponent", REAL, true, decay_power),
    LAW("samples_exponent", REAL, true, samples_exponent),
    WORD("staleness_at", false, staleness_at, "step|arrival"),
    LAW("recheck", FLAG, false, recheck),
    WORD("normalise", false, normalise, "mean|count"),
    LAW("clip", REAL, true, clip),
    LAW("clip_average", REAL, true, clip_average),
    WORD("damp", true, damp, "off|mean_weight"),
    WORD("window_algorithm", false, window_algorithm, "auto|direct|stacks"),
    LAW("flush_min", COUNT32, true, flush_min),
    LAW("magnitude_max", REAL, false, magnitude_max),
    WORD("optimizer", false, algorithm, "sgd|momentum|nesterov|rmsprop|adam|amsgrad|adamw|lamb"),
    LAW("learning_rate", REAL, true, learning_rate),
    WORD("schedule", false, schedule, "constant|linear|cosine"),
    LAW("learning_rate_end", REAL, true, learning_rate_end),
    LAW("schedule_steps", COUNT64, false, schedule_steps),
    LAW("warmup_steps", COUNT64, false, warmup_steps),
    LAW("beta1", REAL, false, beta1),
    LAW("beta2", REAL, false, beta2),
    WORD("gradient_dtype", false, gradient_dtype, CODEC_NAMES),
    OPTIMIZER("eps", REAL, epsilon),
    OPTIMIZER("dampening", REAL, dampening),
    OPTIMIZER("weight_decay", REAL, weight_decay),
    OPTIMIZER("centered", FLAG, centered),
    OPTIMIZER("rmsprop_momentum", FLAG, momentum),
    OPTIMIZER("always_adapt", FLAG, always_adapt),
};

enum { ROWS = sizeof rows / sizeof *rows, VALUE_MAX = 64 };

/* Younger than the first recordings, in which it is missing: so it is written only when it says
 * something. */
static bool may_miss(const struct row *row)
{
    return strcmp(row->name, "gradient_dtype") == 0;
}

static const struct row *find_row(const char *name, size_t length)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, name, length) == 0)
            return &rows[i];
    return NULL;
}

/* The number of `word` among "a|b|c", or -1. */
static int word_number(const char *words, const char *word)
{
    const size_t length = strlen(word);
    for (int number = 0;; number++) {
        const size_t span = strcspn(words, "|");
        if (span == length && memcmp(words, word, length) == 0)
            return number;
        if (words[span] == 0)
            return -1;
        words += span + 1;
    }
}

static void word_write(const char *words, uint32_t number, char value[VALUE_MAX])
{
    for (; number > 0; number--)
        words += strcspn(words, "|") + 1;
    snprintf(value, VALUE_MAX, "%.*s", (int)strcspn(words, "|"), words);
}

static void value_write(const struct row *row, const uint8_t *field, char value[VALUE_MAX])
{
    uint32_t count32 = 0;
    uint64_t count64 = 0;
    int64_t whole = 0;
    double real = 0;
    bool flag = false;
    switch (row->type) {
    case COUNT32:
        memcpy(&count32, field, sizeof count32);
        snprintf(value, VALUE_MAX, "%" PRIu32, count32);
        break;
    case COUNT64:
        memcpy(&count64, field, sizeof count64);
        snprintf(value, VALUE_MAX, "%" PRIu64, count64);
        break;
    case WHOLE:
        memcpy(&whole, field, sizeof whole);
        snprintf(value, VALUE_MAX, "%" PRId64, whole);
        break;
    case REAL:
        memcpy(&real, field, sizeof real);
        snprintf(value, VALUE_MAX, "%a", real);
        break;
    case FLAG:
        memcpy(&flag, field, sizeof flag);
        snprintf(value, VALUE_MAX, "%s", flag ? "on" : "off");
        break;
    case CHOICE:
        memcpy(&count32, field, sizeof count32);
        word_write(row->words, count32, value);
        break;
    }
}

/* The first character must already belong to the number: no spaces, no "+". */
static bool starts_number(const char *text, bool negative)
{
    return (*text >= '0' && *text <= '9') || (negative && *text == '-');
}

static bool read_count(const char *text, uint64_t most, uint64_t *count)
{
    char *end = NULL;
    const unsigned long long number = strtoull(text, &end, 10);
    *count = number;
    return starts_number(text, false) && *end == 0 && strlen(text) < 20 && number <= most;
}

static bool value_read(const struct row *row, const char *text, uint8_t *field)
{
    uint64_t count = 0;
    if (row->type == COUNT32 || row->type == COUNT64) {
        if (!read_count(text, row->type == COUNT32 ? UINT32_MAX : UINT64_MAX, &count))
            return false;
        const uint32_t count32 = (uint32_t)count;
        if (row->type == COUNT32)
            memcpy(field, &count32, sizeof count32);
        else
            memcpy(field, &count, sizeof count);
        return true;
    }
    if (row->type == WHOLE) { /* "off" is how people write -1 */
        if (!read_count(text, INT64_MAX, &count) && strcmp(text, "-1") != 0 &&
            strcmp(text, "off") != 0)
            return false;
        const int64_t whole = starts_number(text, false) ? (int64_t)count : -1;
        memcpy(field, &whole, sizeof whole);
        return true;
    }
    if (row->type == REAL) {
        char *end = NULL;
        const double real = strtod(text, &end);
        memcpy(field, &real, sizeof real);
        return starts_number(text, true) && *end == 0 && isfinite(real);
    }
    const int number = word_number(row->type == FLAG ? "off|on" : row->words, text);
    if (number < 0)
        return false;
    const bool flag = number == 1;
    const uint32_t choice = (uint32_t)number;
    if (row->type == FLAG)
        memcpy(field, &flag, sizeof flag);
    else
        memcpy(field, &choice, sizeof choice);
    return true;
}

gradweir_status ledger_settings_write(const struct law_settings *settings,
                                      const struct optimizer_options *optimizer, char *text,
                                      size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < ROWS; i++) {
        const uint8_t *base =
            rows[i].optimizer ? (const uint8_t *)optimizer : (const uint8_t *)settings;
        char value[VALUE_MAX];
        if (may_miss(&rows[i]) && settings->gradient_dtype == ARITHMETIC_F32)
            continue;
        value_write(&rows[i], base + rows[i].offset, value);
        const int written = snprintf(text + used, size - used, "%s = %s\n", rows[i].name, value);
        if (written < 0 || (size_t)written >= size - used)
            return fail(GRADWEIR_ERR_FULL, "settings do not fit in %zu bytes", size);
        used += (size_t)written;
    }
    return GRADWEIR_OK;
}

/* Copies a line's value into a text of its own; false when it is too long or not there. */
static bool split_line(const char *line, size_t length, size_t *name_length, char value[VALUE_MAX])
{
    const char *middle = memchr(line, ' ', length);
    if (!middle || (size_t)(middle - line) + 3 > length || memcmp(middle, " = ", 3) != 0)
        return false;
    *name_length = (size_t)(middle - line);
    const size_t value_length = length - *name_length - 3;
    if (value_length == 0 || value_length >= VALUE_MAX)
        return false;
    memcpy(value, middle + 3, value_length);
    value[value_length] = 0;
    return true;
}

gradweir_status ledger_settings_read(const char *text, struct law_settings *settings,
                                     struct optimizer_options *optimizer)
{
    struct law_settings law;
    struct optimizer_options options;
    bool seen[ROWS] = {false};
    size_t count = 0;
    memset(&law, 0, sizeof law); /* padding included: ledgers are compared by bytes */
    memset(&options, 0, sizeof options);
    for (const char *line = text; *line != 0; count++) {
        const size_t length = strcspn(line, "\n");
        size_t name_length = 0;
        char value[VALUE_MAX];
        if (line[length] != '\n' || !split_line(line, length, &name_length, value))
            return fail(GRADWEIR_ERR_PROTOCOL, "settings: line %zu is not \"name = value\"",
                        count + 1);
        const struct row *row = find_row(line, name_length);
        if (!row || seen[row - rows])
            return fail(GRADWEIR_ERR_PROTOCOL, "settings: line %zu is unknown or a repeat",
                        count + 1);
        seen[row - rows] = true;
        uint8_t *base = row->optimizer ? (uint8_t *)&options : (uint8_t *)&law;
        if (!value_read(row, value, base + row->offset))
            return fail(GRADWEIR_ERR_PROTOCOL, "settings: %s cannot be that", row->name);
        line += length + 1;
    }
    for (size_t i = 0; i < ROWS; i++)
        if (!seen[i] && !may_miss(&rows[i]))
            return fail(GRADWEIR_ERR_PROTOCOL, "settings: %s is missing", rows[i].name);
    if (law_settings_check(&law) != GRADWEIR_OK)
        return GRADWEIR_ERR_PROTOCOL;
    memcpy(settings, &law, sizeof law);
    memcpy(optimizer, &options, sizeof options);
    return GRADWEIR_OK;
}

gradweir_status ledger_settings_tune(struct law_settings *settings, const char *name,
                                     const char *value)
{
    const struct row *row = find_row(name, strlen(name));
    if (!row)
        return fail(GRADWEIR_ERR_INVALID, "%s is no setting of the law", name);
    if (!row->live)
        return fail(GRADWEIR_ERR_INVALID, "%s cannot be changed while the job runs", name);
    struct law_settings tuned;
    memcpy(&tuned, settings, sizeof tuned);
    if (!value_read(row, value, (uint8_t *)&tuned + row->offset))
        return fail(GRADWEIR_ERR_INVALID, "%s cannot be %s", name, value);
    if (tuned.clip_average > 0.0 && settings->clip_average <= 0.0)
        return fail(GRADWEIR_ERR_INVALID, "clip_average was off at start, and shards keep the "
                                          "average only if it was on: start with a large one");
    if (law_settings_check(&tuned) != GRADWEIR_OK)
        return GRADWEIR_ERR_INVALID;
    memcpy(settings, &tuned, sizeof tuned);
    return GRADWEIR_OK;
}
