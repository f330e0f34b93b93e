/* The window by stacks: from the law's numbers into a STEP record, and back. */
#include "common/ledger.h"

#include <string.h>

void ledger_stacks_write(const struct law_step_stacks *stacks, struct record_step *step)
{
    if (!stacks->on)
        return;
    step->algorithm = STEP_STACKS;
    step->stacks = (struct step_stacks){.position = stacks->position,
                                        .window = stacks->window,
                                        .fresh = stacks->fresh,
                                        .known = stacks->known,
                                        .ratio = stacks->ratio,
                                        .anchor = stacks->anchor,
                                        .turns_count = stacks->turns_n};
    memcpy(&step->stacks.rescale, &stacks->rescale, sizeof(float));
    for (uint32_t i = 0; i < stacks->turns_n; i++) {
        step->turns[i].behind = stacks->turns[i].behind;
        memcpy(&step->turns[i].weight, &stacks->turns[i].weight, sizeof(float));
    }
}

void ledger_stacks_read(const struct record_step *step, struct law_step_stacks *stacks)
{
    const struct step_stacks *said = &step->stacks;
    stacks->on = step->algorithm == STEP_STACKS;
    if (!stacks->on)
        return;
    stacks->position = said->position;
    stacks->window = said->window;
    stacks->fresh = said->fresh;
    stacks->known = said->known;
    stacks->ratio = said->ratio;
    stacks->anchor = said->anchor;
    stacks->turns_n = said->turns_count;
    memcpy(&stacks->rescale, &said->rescale, sizeof(float));
    for (uint32_t i = 0; i < said->turns_count; i++) {
        stacks->turns[i].behind = step->turns[i].behind;
        memcpy(&stacks->turns[i].weight, &step->turns[i].weight, sizeof(float));
    }
}
