/* The window by stacks: which steps are taken so, and with what numbers. law.h has the schedule,
 * arithmetic_stacks.h what is done with it.
 *
 * Sums are kept with the weights of the step that made them. Weights of an entry at two steps
 * differ by a factor that is the same for all entries of both windows, because they are separable:
 * under exp by beta^(versions between), and always by the change of the divisor. That factor is the
 * `ratio` of a step to the one before, read off the newest entry that both have (the anchor). */
#include "common/law.h"

#include "common/status.h"

#include <string.h>

/* Factors beyond these could push sums out of float32's normal numbers. */
static const double smallest = 0x1p-60, largest = 0x1p60;

bool law_stacks_separable(const struct law_settings *settings)
{
    return !settings->recheck &&
           (settings->decay != LAW_POLY || settings->staleness_at == LAW_AT_ARRIVAL);
}

/* With a stride of S: S new gradients, the back twice, one front, half a gradient between fronts,
 * and for the stripes that turn S gradients and half as many fronts, whose memory comes into the
 * cache for it. */
uint64_t law_stacks_passes(const struct law_settings *settings)
{
    return 3 * (uint64_t)settings->stride + 4;
}

static bool cheaper(const struct law_settings *settings)
{
    return settings->window > law_stacks_passes(settings);
}

/* Under a strong decay most of a window weighs nothing, and factors soon leave their bounds. */
static bool fades_slowly(const struct law_settings *settings)
{
    const uint64_t steps = settings->window / settings->stride + 1;
    return settings->decay != LAW_EXP || settings->staleness_at == LAW_AT_ARRIVAL ||
           arithmetic_power(settings->decay_beta, steps) > 0x1p-40;
}

/* Of two gradients there is no sum to keep: reading them is all that the direct pass does. */
static bool keeps_sums(const struct law_settings *settings)
{
    return settings->window > 2 && settings->window > settings->stride;
}

static bool wanted(const struct law_settings *settings)
{
    if (!law_stacks_separable(settings) || !keeps_sums(settings) ||
        settings->window_algorithm == LAW_DIRECT)
        return false;
    return settings->window_algorithm == LAW_STACKS ||
           (cheaper(settings) && fades_slowly(settings));
}

uint32_t law_stacks_room(const struct law_settings *settings)
{
    return wanted(settings) ? settings->window : 0;
}

uint32_t law_stacks_fronts(uint32_t room)
{
    return (room + LAW_FRONT_EVERY - 1) / LAW_FRONT_EVERY;
}

/* The weight of the i-th entry but for its clip, which is its own; 0 or NaN when it has none. */
static double plain_weight(const struct law *law, const struct law_step *step, uint32_t i)
{
    return step->entries[i].weight_exact / law_at(law, i)->clip;
}

static bool bounded(double factor)
{
    return factor >= smallest && factor <= largest; /* false for NaN */
}

static bool fill_turns(const struct law *law, struct law_step_stacks *stacks)
{
    bool all = true;
    for (uint32_t i = law->stacks.turns_n; i > 0; i--) {
        const struct law_turn *turn = &law->turns[i - 1];
        const uint64_t behind = law->next - turn->position;
        const double weight = turn->weight * stacks->ratio;
        if (behind >= stacks->window)
            break;
        all = all && bounded(weight);
        stacks->turns[stacks->turns_n++] =
            (struct arithmetic_age){.behind = (uint32_t)behind, .weight = (float)weight};
    }
    return all;
}

void law_stacks_step(const struct law *law, struct law_step *step)
{
    const struct law_stacks *before = &law->stacks;
    struct law_step_stacks *stacks = &step->stacks;
    const uint64_t fresh = law->next - before->stepped;
    const bool begins = before->turns_n == 0;
    if (!wanted(&law->settings) || law->settings.window > before->room ||
        step->n != law_size(law) || fresh == 0 || fresh > step->n || (!begins && fresh == step->n))
        return;
    const uint64_t known = law->next - (begins ? before->stepped : before->began);
    stacks->position = law->next;
    stacks->window = law->settings.window;
    stacks->fresh = (uint32_t)fresh;
    stacks->known = known < stacks->window ? (uint32_t)known : stacks->window;
    stacks->anchor = plain_weight(law, step, step->n - 1);
    stacks->ratio = 1.0;
    if (!begins)
        stacks->ratio = plain_weight(law, step, step->n - 1 - stacks->fresh) / before->anchor;
    const double rescale = begins ? 1.0 : stacks->ratio / before->drift;
    stacks->rescale = (float)rescale;
    const bool turns = fill_turns(law, stacks);
    stacks->on = turns && bounded(rescale) && bounded(stacks->ratio) && bounded(stacks->anchor);
}

void law_stacks_restart(struct law *law)
{
    law->stacks.turns_n = 0;
}

/* Turns that no later step can read make room. */
static void forget_turns(struct law *law)
{
    uint32_t gone = 0;
    while (gone < law->stacks.turns_n &&
           law->next - law->turns[gone].position >= law->settings.window)
        gone++;
    law->stacks.turns_n -= gone;
    memmove(law->turns, law->turns + gone, law->stacks.turns_n * sizeof *law->turns);
}

void law_stacks_apply(struct law *law, const struct law_step_stacks *step)
{
    struct law_stacks *stacks = &law->stacks;
    if (!step->on) {
        law_stacks_restart(law);
        stacks->stepped = law->next;
        return;
    }
    const bool begins = stacks->turns_n == 0;
    if (begins)
        stacks->began = stacks->stepped;
    stacks->drift = begins ? 1.0 : stacks->drift * ((double)step->rescale / step->ratio);
    for (uint32_t i = 0; i < stacks->turns_n; i++)
        law->turns[i].weight *= step->ratio;
    forget_turns(law);
    ASSERT(stacks->turns_n < LAW_WINDOW_MAX);
    law->turns[stacks->turns_n++] = (struct law_turn){.position = law->next, .weight = 1.0};
    stacks->anchor = step->anchor;
    stacks->stepped = law->next;
}

/* A stripe of age a turned at the first step that was not before position - a: the oldest turn
 * that is at most a behind. */
void law_stacks_plan(const struct law_step_stacks *step, struct arithmetic_stacks *stacks)
{
    memset(stacks, 0, sizeof *stacks);
    if (!step->on)
        return;
    stacks->window = step->window;
    stacks->every = LAW_FRONT_EVERY;
    stacks->fronts = law_stacks_fronts(step->window);
    stacks->fresh = step->fresh;
    stacks->position = step->position;
    stacks->rescale = step->rescale;
    for (uint32_t age = step->fresh, turn = 0; age < step->known; age++) {
        while (turn + 1 < step->turns_n && step->turns[turn + 1].behind <= age)
            turn++;
        stacks->ages[age] = step->turns[turn];
    }
}
