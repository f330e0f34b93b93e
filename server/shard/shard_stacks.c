/* The window by stacks: the shard's memory for it, and a step's plan of it. What is done with them
 * is common/arithmetic_stacks.h's. */
#include "server/shard/shard_internal.h"

/* Stripes are so many that the turns of a window's worth of steps are all alike, and else long:
 * shorter runs of memory are slower to read. They follow from the model and the law alone, never
 * from how many shards there are, for they decide which sums an average is made of. Another law of
 * them raises SHARD_FORMAT and the number at the head of a recording's log. */
void stacks_measure(struct shard *shard, const struct model *model, const struct law_settings *law)
{
    const uint32_t most = shard->options.stripe_max;
    shard->stacks = law_stacks_room(law);
    shard->stripe = most ? most : LAW_STRIPE_MAX;
    while (shard->stripe > 1 && model->elements / shard->stripe < 4 * (uint64_t)shard->stacks)
        shard->stripe /= 2;
}

uint64_t stacks_arrays(const struct shard *shard)
{
    return shard->stacks ? 1 + (uint64_t)law_stacks_fronts(shard->stacks) : 0;
}

/* Is there memory for what this record wants? */
bool stacks_room(const struct shard *shard, const struct record *record)
{
    const struct step_stacks *stacks = &record->step.stacks;
    return record->kind != RECORD_STEP || record->step.algorithm != STEP_STACKS ||
           (stacks->window > 0 && stacks->window <= shard->stacks &&
            stacks->turns_count <= WINDOW_MAX && stacks->fresh <= record->step.entries_count &&
            stacks->known <= stacks->window && record->step.entries_count <= stacks->position);
}

void stacks_plan(const struct record_step *record, struct arithmetic_stacks *stacks)
{
    struct law_step_stacks step;
    ledger_stacks_read(record, &step);
    law_stacks_plan(&step, stacks);
}

/* May the loops be given this plan, whoever wrote it? */
bool stacks_sound(const struct shard *shard, const struct arithmetic_plan *plan)
{
    const struct arithmetic_stacks *stacks = &plan->stacks;
    return stacks->window == 0 ||
           (stacks->window <= shard->stacks && stacks->every == LAW_FRONT_EVERY &&
            stacks->fronts == law_stacks_fronts(stacks->window) && stacks->fresh > 0 &&
            stacks->fresh <= plan->entries_n && plan->entries_n <= stacks->position);
}

bool stacks_written(const struct shard *shard)
{
    const struct stepping *step = &shard->step;
    const bool averages = step->phase == STEP_AVERAGING || step->phase == STEP_MOMENTS ||
                          (step->phase == STEP_APPLYING && !step->record.rounds);
    return step->plan.stacks.window > 0 && averages;
}
