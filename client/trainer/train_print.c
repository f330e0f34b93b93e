/* The options in words: --help, and the settings of the summary. See train_settings.h. */
#include "client/trainer/train_checks.h"
#include "client/trainer/train_options.h"
#include "client/trainer/train_words.h"

static const void *member_of(const struct train_settings *settings, const struct option *option)
{
    return (const char *)settings + option->offset;
}

static void print_value(const struct train_settings *settings, const struct option *option,
                        FILE *file)
{
    const void *value = member_of(settings, option);
    const struct train_pair *pair = value;
    if (option->kind == OPTION_PAIR && pair->given)
        fprintf(file, "[%llu, %.9g]", (unsigned long long)pair->worker, pair->value);
    else if (option->kind == OPTION_PAIR)
        fputs("null", file);
    else if (option->kind == OPTION_FLAG)
        fputs(*(const bool *)value ? "true" : "false", file);
    else if (option->kind == OPTION_NUMBER)
        fprintf(file, "%.9g", *(const double *)value);
    else if (option->kind == OPTION_COUNT)
        fprintf(file, "%llu", (unsigned long long)*(const uint64_t *)value);
    else
        train_word_json(file, *(const char *const *)value);
}

void train_settings_help(const struct train_settings *settings, FILE *file)
{
    fputs("gradweir-train: the reference PPO trainer. Options, with the values in force:\n", file);
    for (size_t i = 0; i < train_options_n; i++) {
        if (train_options[i].help == NULL)
            continue;
        fprintf(file, "  --%-17s ", train_options[i].name);
        print_value(settings, &train_options[i], file);
        fprintf(file, "  %s", train_options[i].help);
        if (train_options[i].kind == OPTION_COUNT || train_options[i].kind == OPTION_NUMBER)
            fprintf(file, " (%g to %g)", train_options[i].low, train_options[i].high);
        fputc('\n', file);
    }
}

void train_settings_json(const struct train_settings *settings, FILE *file)
{
    for (size_t i = 0; i < train_options_n; i++) {
        if (train_options[i].help == NULL)
            continue;
        fputs("  \"", file);
        for (const char *p = train_options[i].name; *p != '\0'; p++)
            fputc(*p == '-' ? '_' : *p, file);
        fputs("\": ", file);
        if (settings->servers != NULL && train_check_servers_have(train_options[i].name))
            fputs("null", file);
        else
            print_value(settings, &train_options[i], file);
        fputs(",\n", file);
    }
}
