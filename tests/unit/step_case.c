#include "tests/unit/step_case.h"

void step_case_groups(struct arithmetic_plan *plan)
{
    for (uint32_t g = 0; g < 3; g++)
        arithmetic_plan_group(plan, g,
                              &(struct arithmetic_group_numbers){.learning_rate = 0.01 * (g + 1),
                                                                 .weight_decay = 0.1,
                                                                 .beta1 = 0.9,
                                                                 .beta2 = 0.99,
                                                                 .dampening = 0.1,
                                                                 .bias1 = arithmetic_bias(0.9, 7),
                                                                 .bias2 = arithmetic_bias(0.99, 7),
                                                                 .frozen = g == 2});
}

void step_case_tensors(const uint64_t borders[STEP_CASE_TENSORS + 1],
                       struct arithmetic_range *ranges, float *ratios)
{
    for (uint32_t t = 0; t < STEP_CASE_TENSORS; t++) {
        ranges[t] = (struct arithmetic_range){
            .begin = borders[t], .end = borders[t + 1], .group = t % 3, .tensor = t};
        ratios[t] = 0.3f + (float)t;
    }
}
