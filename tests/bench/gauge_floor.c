/* The floor as a command: what one thread of this machine can do with gradients of a size. */
#include "tests/bench/floor.h"
#include "tests/bench/gauge.h"

#include <string.h>

static const double burst_share = 0.2;

int gauge_floor(const struct gauge *gauge)
{
    const bool sgd = strcmp(gauge->optimizer, "sgd") == 0;
    const double traffic = (sgd ? FLOOR_SGD_TRAFFIC : FLOOR_ADAM_TRAFFIC) / (double)sizeof(float);
    const double burst = burst_share * gauge->seconds / gauge->rounds;
    struct gauge_values push = {.count = 0}, copy = push, step = push, triad = push, ratio = push;
    struct gauge_values limit = push, copied = push, land = push;
    struct floor *floor = floor_open(gauge->bytes, sgd ? FLOOR_SGD : FLOOR_ADAM);
    if (!floor_sound(floor_choose())) {
        fprintf(stderr,
                "gradweir-bench: the floor's loops compute something else than they should\n");
        floor_close(floor);
        return 1;
    }
    if (!floor) {
        fprintf(stderr, "gradweir-bench: no memory for the floor's slots\n");
        return 1;
    }
    for (uint32_t i = 0; i < gauge->rounds; i++) {
        gauge_progress(gauge, i);
        gauge_add(&push, floor_push_rate(floor, burst));
        gauge_add(&land, floor_land_rate(floor, burst));
        gauge_add(&copy, floor_copy_rate(floor, burst));
        gauge_add(&limit, floor_copy_limit(floor, burst));
        gauge_add(&copied, copy.at[i] / limit.at[i]);
        gauge_add(&step, floor_step_rate(floor, burst) * traffic);
        gauge_add(&triad, floor_triad(floor, burst));
        gauge_add(&ratio, step.at[i] / triad.at[i]);
    }
    struct gauge_row row = gauge_row();
    row.floor_gbps = row.goodput_gbps = gauge_median(&push);
    row.floor_ratio = 1;
    row.memcpy_gbps = floor_memcpy_rate(floor, burst);
    row.ops_per_s = row.goodput_gbps * 1e9 / (double)gauge->bytes;
    gauge_extra(&row, "land_gbps", gauge_median(&land));
    gauge_extra(&row, "copy_gbps", gauge_median(&copy));
    gauge_extra(&row, "copy_limit_gbps", gauge_median(&limit));
    gauge_extra(&row, "copy_ratio", gauge_median(&copied));
    gauge_extra(&row, "step_traffic_gbps", gauge_median(&step));
    gauge_extra(&row, "triad_gbps", gauge_median(&triad));
    gauge_extra(&row, "step_triad_ratio", gauge_median(&ratio));
    gauge_print(gauge, &row);
    floor_close(floor);
    return 0;
}
