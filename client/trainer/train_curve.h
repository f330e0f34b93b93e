/* The learning curve of a run: a row a second, as CSV and as a picture. */
#ifndef GRADWEIR_TRAINER_TRAIN_CURVE_H
#define GRADWEIR_TRAINER_TRAIN_CURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CURVE_POINTS_MAX = 4096, CURVE_MARKS_MAX = 8 };

struct curve_point {
    double seconds;
    uint64_t env_steps, version;
    double mean_return; /* of the last 100 episodes */
    double pushes_per_s, staleness_mean;
};

struct curve_mark {
    double seconds;
    char text[48];
};

struct curve {
    struct curve_point points[CURVE_POINTS_MAX];
    struct curve_mark marks[CURVE_MARKS_MAX];
    size_t n_points, n_marks;
};

/* A full curve keeps every second point and goes on. */
void curve_add(struct curve *curve, const struct curve_point *point);
void curve_mark(struct curve *curve, double seconds, const char *text);

/* Writes NAME.csv and NAME.svg; false when one cannot be written (errno). */
bool curve_write(const struct curve *curve, const char *name, const char *title, double until);

#endif
