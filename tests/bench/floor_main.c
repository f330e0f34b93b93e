/* The floor as a program by itself:
 *
 *     floor [MiB [rounds]]      without MiB: at 1, 16 and 64
 *
 * Prints rates and how near each part comes to the machine's own limit in the same run: its copy to
 * the best copy (wanted: 0.9), its steps' traffic to the triad's (wanted: 0.7). Parts and limits
 * take turns; the medians of `rounds` (9) count. Ends with 1 when one is short. */
#include "tests/bench/floor.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS_MAX = 99 };

static const double burst = 0.05, copy_wanted = 0.9, step_wanted = 0.7;

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
}

static bool measure(double mib, enum floor_optimizer optimizer, int rounds)
{
    static double copies[ROUNDS_MAX], limits[ROUNDS_MAX], copied[ROUNDS_MAX], lands[ROUNDS_MAX];
    static double steps[ROUNDS_MAX], triads[ROUNDS_MAX], stepped[ROUNDS_MAX], pushes[ROUNDS_MAX];
    const int traffic = optimizer == FLOOR_SGD ? FLOOR_SGD_TRAFFIC : FLOOR_ADAM_TRAFFIC;
    struct floor *floor = floor_open((size_t)(mib * 1048576), optimizer);
    if (!floor) {
        fprintf(stderr, "floor: no memory for gradients of %g MiB\n", mib);
        exit(1);
    }
    for (int i = 0; i < rounds; i++) {
        copies[i] = floor_copy_rate(floor, burst);
        limits[i] = floor_copy_limit(floor, 3 * burst);
        copied[i] = copies[i] / limits[i];
        lands[i] = floor_land_rate(floor, burst);
        steps[i] = floor_step_rate(floor, burst) * traffic / (double)sizeof(float);
        triads[i] = floor_triad(floor, 2 * burst);
        stepped[i] = steps[i] / triads[i];
        pushes[i] = floor_push_rate(floor, 2 * burst);
    }
    const double copy_ratio = median(copied, rounds), step_ratio = median(stepped, rounds);
    printf("%5g MiB %-4s  push %6.2f  land %6.2f  copy %6.2f of %6.2f GB/s: %.2f  step %6.2f of "
           "%6.2f GB/s of traffic: %.2f  (%s)\n",
           mib, optimizer == FLOOR_SGD ? "sgd" : "adam", median(pushes, rounds),
           median(lands, rounds), median(copies, rounds), median(limits, rounds), copy_ratio,
           median(steps, rounds), median(triads, rounds), step_ratio, floor_ways(floor));
    fflush(stdout);
    floor_close(floor);
    return copy_ratio >= copy_wanted && step_ratio >= step_wanted;
}

int main(int count, char **arguments)
{
    static const double usual[] = {1, 16, 64};
    const double asked = count > 1 ? strtod(arguments[1], NULL) : 0;
    const int rounds = count > 2 ? atoi(arguments[2]) : 9;
    bool whole = true;
    if (count > 3 || (count > 1 && !(asked > 0 && asked <= 4096)) || rounds < 1 ||
        rounds > ROUNDS_MAX) {
        fprintf(stderr, "floor [MiB [rounds]]: MiB above 0 up to 4096, rounds 1 to %d\n",
                ROUNDS_MAX);
        return 2;
    }
    if (!floor_sound(floor_choose())) {
        fprintf(stderr, "floor: its loops compute something else than they should\n");
        return 1;
    }
    for (int i = 0; i < (asked > 0 ? 1 : 3); i++)
        for (int optimizer = FLOOR_SGD; optimizer <= FLOOR_ADAM; optimizer++)
            whole &= measure(asked > 0 ? asked : usual[i], (enum floor_optimizer)optimizer, rounds);
    return whole ? 0 : 1;
}
