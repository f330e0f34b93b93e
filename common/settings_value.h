/* One value of a setting: from its text and back. A part of settings.c, kept apart for size. */
#ifndef GRADWEIR_COMMON_SETTINGS_VALUE_H
#define GRADWEIR_COMMON_SETTINGS_VALUE_H

#include "common/settings.h"

struct setting_value {
    int64_t whole;                   /* BOOL, INT, DURATION (ns), SIZE (bytes), CHOICE (index) */
    double real;                     /* FLOAT */
    char text[SETTING_TEXT_MAX + 1]; /* TEXT, and the word of a CHOICE */
};

/* Reads text as a row's type, within its bounds. ERR_INVALID with the range; *value is untouched
 * then. */
gradweir_status setting_value_read(const struct setting *row, const char *text,
                                   struct setting_value *value);

/* As one would write it in a file. Cut at size. */
void setting_value_write(const struct setting *row, const struct setting_value *value, char *text,
                         size_t size);

/* "1 to 64, or off", "one of posix|tcp|rc", ... */
void setting_range_write(const struct setting *row, char *text, size_t size);

#endif
