#include "client/trainer/train_curve.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The picture of two points, as text. */
static void draw(double seconds, double first, double last, double until, char *text, size_t size)
{
    char folder[] = "/tmp/gradweir-curve-XXXXXX", name[64], path[80];
    struct curve *curve = calloc(1, sizeof *curve);
    cr_assert(curve != NULL && mkdtemp(folder) != NULL);
    curve_add(curve, &(struct curve_point){.seconds = 1, .mean_return = first});
    curve_add(curve, &(struct curve_point){.seconds = seconds, .mean_return = last});
    snprintf(name, sizeof name, "%s/c", folder);
    cr_assert(curve_write(curve, name, "title", until));
    snprintf(path, sizeof path, "%s.csv", name);
    unlink(path);
    snprintf(path, sizeof path, "%s.svg", name);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
    unlink(path);
    rmdir(folder);
    free(curve);
}

/* How often a label stands in it. */
static size_t labels(const char *text, const char *label)
{
    char part[32];
    size_t n = 0;
    snprintf(part, sizeof part, ">%s</text>", label);
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        n++;
    return n;
}

Test(curve, ticks_are_round_numbers_and_whole_seconds_each_once)
{
    char text[16384];
    static const char *const long_run[] = {"0",   "100",  "200",  "300",  "400", "500",
                                           "0 s", "10 s", "20 s", "30 s", "40 s"};
    static const char *const short_run[] = {"0 s",  "1 s",  "2 s", "-200",
                                            "-150", "-100", "-50", "0"};
    draw(47.3, 21.4, 487.2, 475, text, sizeof text);
    for (size_t i = 0; i < sizeof long_run / sizeof *long_run; i++)
        cr_expect_eq(labels(text, long_run[i]), 1, "%s", long_run[i]);
    draw(2.3, -200, -180, -90, text, sizeof text);
    for (size_t i = 0; i < sizeof short_run / sizeof *short_run; i++)
        cr_expect_eq(labels(text, short_run[i]), 1, "%s", short_run[i]);
}

Test(curve, a_run_without_returns_has_axes_too)
{
    char text[16384];
    draw(1, 0.0 / 0.0, 0.0 / 0.0, 0, text, sizeof text);
    cr_expect_eq(labels(text, "0 s"), 1);
    cr_expect_eq(labels(text, "1 s"), 1);
}
