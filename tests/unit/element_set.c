#include "tests/unit/element_set.h"

#include "common/element_gradient.h"
#include "common/element_stacks.h"

#include <string.h>

static void average(const struct arithmetic_plan *plan, const struct arithmetic_sources *sources,
                    size_t begin, size_t end, float *out)
{
    for (size_t i = begin; i < end; i++)
        out[i - begin] = element_window_average(plan, sources, sources->codec, i);
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
                             : element_window_average(plan, &work->sources, work->sources.codec, i),
                         &item);
        if (plan->phase != ARITHMETIC_MOMENTS)
            work->parameters_next[i] = item.theta;
        for (size_t k = 0; k < ARITHMETIC_STATES_MAX && work->state[k] != NULL && !apply; k++)
            work->state_next[k][i] = item.state[k];
    }
}

static unsigned char *int8_block(void *to, size_t at)
{
    return (unsigned char *)to + at / ELEMENT_INT8_BLOCK * (sizeof(float) + ELEMENT_INT8_BLOCK);
}

static void encode_int8(float factor, const float *from, size_t n, unsigned char *to)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = element_larger_magnitude(largest, element_scaled(from[i], factor));
    const float scale = element_int8_scale(largest), inverse = element_int8_inverse(scale);
    memcpy(to, &scale, sizeof scale);
    for (size_t i = 0; i < n; i++)
        to[sizeof scale + i] =
            (unsigned char)element_int8_sent(element_scaled(from[i], factor), scale, inverse);
}

static void encode(enum arithmetic_codec codec, float scale, const float *from, size_t n, void *to)
{
    for (size_t i = 0; i < n && codec != ARITHMETIC_INT8; i++) {
        const float x = element_scaled(from[i], scale);
        if (codec == ARITHMETIC_F32)
            ((float *)to)[i] = x;
        else
            ((uint16_t *)to)[i] = codec == ARITHMETIC_BF16 ? element_to_bf16(x) : element_to_f16(x);
    }
    for (size_t i = 0; i < n && codec == ARITHMETIC_INT8; i += ELEMENT_INT8_BLOCK)
        encode_int8(scale, from + i, n - i < ELEMENT_INT8_BLOCK ? n - i : ELEMENT_INT8_BLOCK,
                    int8_block(to, i));
}

static void decode(enum arithmetic_codec codec, const void *from, size_t n, float *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = element_decode(codec, from, i);
}

static void measure_int8(const unsigned char *block, size_t n, struct arithmetic_running *running)
{
    float scale;
    int32_t squares = 0, most = 0;
    memcpy(&scale, block, sizeof scale);
    for (size_t i = 0; i < n; i++) {
        const int32_t q = (int8_t)block[sizeof scale + i], size = q < 0 ? -q : q;
        squares += q * q;
        most = size > most ? size : most;
    }
    const uint32_t size = element_int8_magnitude(most, scale);
    running->lanes[0] = element_int8_square_add(running->lanes[0], squares, scale);
    running->largest_bits = size > running->largest_bits ? size : running->largest_bits;
}

static void measure_on(enum arithmetic_codec codec, const void *data, size_t n,
                       struct arithmetic_running *running)
{
    for (size_t i = 0; i < n && codec != ARITHMETIC_INT8; i++) {
        const float x = element_decode(codec, data, i);
        double *lane = &running->lanes[i % ARITHMETIC_LANES];
        *lane = element_square_add(*lane, x);
        running->largest_bits = element_larger_magnitude(running->largest_bits, x);
    }
    for (size_t i = 0; i < n && codec == ARITHMETIC_INT8; i += ELEMENT_INT8_BLOCK)
        measure_int8((const unsigned char *)data +
                         i / ELEMENT_INT8_BLOCK * (sizeof(float) + ELEMENT_INT8_BLOCK),
                     n - i < ELEMENT_INT8_BLOCK ? n - i : ELEMENT_INT8_BLOCK, running);
}

static void measure(enum arithmetic_codec codec, const void *data, size_t n,
                    struct arithmetic_measure *out)
{
    struct arithmetic_running running = {.largest_bits = 0};
    measure_on(codec, data, n, &running);
    arithmetic_running_end(&running, out);
}

static double lamb_sum(const struct arithmetic_plan *plan, const struct arithmetic_work *work,
                       const struct arithmetic_range *piece)
{
    const struct element_law law = element_law_of(plan);
    struct arithmetic_running running = {.largest_bits = 0};
    struct arithmetic_measure out;
    for (size_t i = piece->begin; i < piece->end; i++) {
        const struct element_item item = read_item(work, i, true);
        double *lane = &running.lanes[(i - piece->begin) % ARITHMETIC_LANES];
        *lane = element_square_add(*lane,
                                   element_lamb_update(&law, &plan->groups[piece->group], &item));
    }
    arithmetic_running_end(&running, &out);
    return out.sum_squares;
}

struct arithmetic element_set(void)
{
    struct arithmetic set = arithmetic_scalar;
    set.name = "elements";
    set.encode = encode;
    set.decode = decode;
    set.measure = measure;
    set.measure_on = measure_on;
    set.average = average;
    set.step = step;
    set.lamb_sum = lamb_sum;
    return set;
}
