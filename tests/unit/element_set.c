#include "tests/unit/element_set.h"

#include "common/element_step.h"

static void average(const struct arithmetic_plan *plan, const struct arithmetic_sources *sources,
                    size_t begin, size_t end, float *out)
{
    for (size_t i = begin; i < end; i++)
        out[i - begin] = element_average(plan, sources, sources->codec, i);
}

static struct element_item read_item(const struct arithmetic_work *work, size_t i, bool after)
{
    struct element_item item = {.theta = work->parameters[i]};
    for (size_t k = 0; k < ARITHMETIC_STATES_MAX && work->state[k] != NULL; k++)
        item.state[k] = after ? work->state_next[k][i] : work->state[k][i];
    return item;
}

static void step(const struct arithmetic_plan *plan, const struct arithmetic_work *work,
                 size_t begin, size_t end)
{
    const struct element_law law = element_law_of(plan);
    for (size_t i = begin; i < end; i++) {
        const struct arithmetic_range *range = &work->ranges[arithmetic_range_at(work, i)];
        const struct arithmetic_group *group = &plan->groups[range->group];
        const bool apply = plan->phase == ARITHMETIC_APPLY;
        struct element_item item = read_item(work, i, apply);
        if (!group->frozen && apply)
            element_lamb_apply(&law, group, work->ratios[range->tensor], &item);
        else if (!group->frozen)
            element_step(&law, group,
                         work->average
                             ? work->average[i] * plan->scale
                             : element_average(plan, &work->sources, work->sources.codec, i),
                         &item);
        if (plan->phase != ARITHMETIC_MOMENTS)
            work->parameters_next[i] = item.theta;
        for (size_t k = 0; k < ARITHMETIC_STATES_MAX && work->state[k] != NULL && !apply; k++)
            work->state_next[k][i] = item.state[k];
    }
}

struct arithmetic element_set(void)
{
    struct arithmetic set = arithmetic_scalar;
    set.name = "elements";
    set.average = average;
    set.step = step;
    return set;
}
