/* See train_curve.h. */
#include "client/trainer/train_curve.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH = 860, HEIGHT = 420, LEFT = 60, RIGHT = 20, TOP = 40, BOTTOM = 50 };

void curve_add(struct curve *curve, const struct curve_point *point)
{
    if (curve->n_points == CURVE_POINTS_MAX) {
        for (size_t i = 0; i < CURVE_POINTS_MAX / 2; i++)
            curve->points[i] = curve->points[2 * i];
        curve->n_points = CURVE_POINTS_MAX / 2;
    }
    curve->points[curve->n_points++] = *point;
}

void curve_mark(struct curve *curve, double seconds, const char *text)
{
    if (curve->n_marks == CURVE_MARKS_MAX)
        return;
    struct curve_mark *mark = &curve->marks[curve->n_marks++];
    mark->seconds = seconds;
    snprintf(mark->text, sizeof(mark->text), "%s", text);
}

static bool write_csv(const struct curve *curve, const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return false;
    fputs("seconds,env_steps,version,mean_return,pushes_per_s,staleness_mean\n", file);
    for (size_t i = 0; i < curve->n_points; i++) {
        const struct curve_point *p = &curve->points[i];
        fprintf(file, "%.3f,%llu,%llu,%.3f,%.1f,%.3f\n", p->seconds,
                (unsigned long long)p->env_steps, (unsigned long long)p->version, p->mean_return,
                p->pushes_per_s, p->staleness_mean);
    }
    return fclose(file) == 0;
}

struct scale {
    double seconds, low, high;
};

static struct scale scale_of(const struct curve *curve, double until)
{
    struct scale scale = {1, fmin(0, until), fmax(0, until)};
    for (size_t i = 0; i < curve->n_points; i++) {
        const struct curve_point *p = &curve->points[i];
        scale.seconds = fmax(scale.seconds, p->seconds);
        if (isfinite(p->mean_return)) {
            scale.low = fmin(scale.low, p->mean_return);
            scale.high = fmax(scale.high, p->mean_return);
        }
    }
    scale.high += fmax(0.05 * (scale.high - scale.low), scale.high > scale.low ? 0 : 1);
    return scale;
}

static double x_of(const struct scale *scale, double seconds)
{
    return LEFT + seconds / scale->seconds * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct scale *scale, double value)
{
    return TOP + (scale->high - value) / (scale->high - scale->low) * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten, so that at most six of them fit. */
static double tick_step(double range)
{
    static const double factors[] = {1, 2, 5};
    const double unit = pow(10, floor(log10(range / 6)));
    for (size_t i = 0; i < 3; i++)
        if (range <= 6 * factors[i] * unit)
            return factors[i] * unit;
    return 10 * unit;
}

static void draw_axes(FILE *file, const struct scale *scale)
{
    const double values = tick_step(scale->high - scale->low);
    const double seconds = fmax(1, tick_step(scale->seconds));
    for (long i = (long)ceil(scale->low / values); (double)i * values <= scale->high; i++) {
        const double y = y_of(scale, (double)i * values);
        fprintf(file,
                "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#ddd'/>"
                "<text x='%d' y='%.1f' text-anchor='end'>%.9g</text>\n",
                LEFT, y, WIDTH - RIGHT, y, LEFT - 8, y + 4, (double)i * values);
    }
    for (long i = 0; (double)i * seconds <= scale->seconds; i++)
        fprintf(file, "<text x='%.1f' y='%d' text-anchor='middle'>%.0f s</text>\n",
                x_of(scale, (double)i * seconds), HEIGHT - BOTTOM + 20, (double)i * seconds);
}

static void draw_curve(FILE *file, const struct curve *curve, const struct scale *scale)
{
    fputs("<polyline fill='none' stroke='#1f6fb2' stroke-width='2' points='", file);
    for (size_t i = 0; i < curve->n_points; i++)
        if (isfinite(curve->points[i].mean_return))
            fprintf(file, "%.1f,%.1f ", x_of(scale, curve->points[i].seconds),
                    y_of(scale, curve->points[i].mean_return));
    fputs("'/>\n", file);
    for (size_t i = 0; i < curve->n_marks; i++) {
        const double x = x_of(scale, curve->marks[i].seconds);
        fprintf(
            file,
            "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#c0392b' stroke-dasharray='4 3'/>"
            "<text x='%.1f' y='%zu' fill='#c0392b'>%s</text>\n",
            x, TOP, x, HEIGHT - BOTTOM, x + 4, (size_t)TOP + 14 + 16 * i, curve->marks[i].text);
    }
}

static bool write_svg(const struct curve *curve, const char *path, const char *title, double until)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return false;
    const struct scale scale = scale_of(curve, until);
    fprintf(
        file,
        "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='sans-serif' "
        "font-size='12'>\n<rect width='100%%' height='100%%' fill='white'/>\n"
        "<text x='%d' y='24' font-size='15'>%s</text>\n",
        WIDTH, HEIGHT, LEFT, title);
    draw_axes(file, &scale);
    fprintf(file,
            "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#2e8b57' stroke-dasharray='6 4'/>\n",
            LEFT, y_of(&scale, until), WIDTH - RIGHT, y_of(&scale, until));
    draw_curve(file, curve, &scale);
    fprintf(
        file,
        "<text x='%d' y='%d'>mean return of the last 100 episodes, all workers</text>\n</svg>\n",
        LEFT, HEIGHT - 8);
    return fclose(file) == 0;
}

bool curve_write(const struct curve *curve, const char *name, const char *title, double until)
{
    char path[1100];
    snprintf(path, sizeof(path), "%.1000s.csv", name);
    if (!write_csv(curve, path))
        return false;
    snprintf(path, sizeof(path), "%.1000s.svg", name);
    return write_svg(curve, path, title, until);
}
