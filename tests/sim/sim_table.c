/* What was done and what went wrong, per 1,000 seeds. */
#include "tests/sim/sim_calls.h"

#include <stdio.h>

static void row(const char *words, uint64_t count, uint64_t seeds)
{
    printf("  %12llu %12.1f  %s\n", (unsigned long long)count,
           1000.0 * (double)count / (double)seeds, words);
}

void table_print(const struct sim_counts *counts, uint64_t seeds, double seconds)
{
    printf("%llu events in %.1f s: %.0f seeds/s, %.0f events/s\n",
           (unsigned long long)counts->events, seconds, (double)seeds / seconds,
           (double)counts->events / seconds);
    printf("  %12s %12s  %s\n", "all", "1,000 seeds", "what happened");
    row("gradients pushed", counts->gradients, seeds);
    row("records", counts->records, seeds);
    row("admitted", counts->admitted, seeds);
    row("refused", counts->refused, seeds);
    row("steps", counts->steps, seeds);
    row("steps by stacks", counts->stacks, seeds);
    row("flushes", counts->flushes, seeds);
    row("drains", counts->drains, seeds);
    row("pulls", counts->pulls, seeds);
    row("of boxes", counts->box_pulls, seeds);
    row("of boxes in bfloat16", counts->half_pulls, seeds);
    row("of what is newer", counts->newer_pulls, seeds);
    row("... which was nothing", counts->unmoved, seeds);
    row("of one version exactly", counts->exact_pulls, seeds);
    row("... which was not held", counts->not_held, seeds);
    printf("  %12s %12s  %s\n", "", "", "what was injected");
#define FAULT_ROW(name, words) row(words, counts->name, seeds);
    FAULT_MAP(FAULT_ROW)
#undef FAULT_ROW
}
