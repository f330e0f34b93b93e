/* The one table of gradweir-train's options: what parsing, help, checks and the JSON summary read.
 */
#ifndef GRADWEIR_TRAINER_TRAIN_OPTIONS_H
#define GRADWEIR_TRAINER_TRAIN_OPTIONS_H

#include "client/trainer/train_settings.h"

#include <stddef.h>

enum option_kind { OPTION_WORD, OPTION_COUNT, OPTION_NUMBER, OPTION_FLAG, OPTION_PAIR };

struct option {
    const char *name;
    enum option_kind kind;
    size_t offset; /* of its member in struct train_settings */
    double low;
    double high;
    const char *help; /* NULL: for the program's own use */
};

extern const struct option train_options[];
extern const size_t train_options_n;

#endif
