/* Speeds to plan with: of this machine's memory, as a step uses it, and of wires that were
 * measured.
 */
#ifndef GRADWEIR_SERVER_PLAN_RATES_H
#define GRADWEIR_SERVER_PLAN_RATES_H

#include "common/law.h"
#include "common/ledger.h"

/* Takes steps of these settings over arrays beyond the cache for about half a second, on one
 * thread, and says how many bytes a step moves per second, counted as plan.c counts them: `passes`
 * floats per parameter. */
gradweir_status plan_rates_step(const struct law_settings *law,
                                const struct optimizer_options *optimizer, uint64_t passes,
                                double *bytes_per_second);

/* What a bench has measured: of push and of pull, bytes per second; 0: the file has none. */
struct plan_wires {
    double push, pull;
    char transport[16];
};

/* Reads lines as gradweir-bench --json and gradweirctl bench --json print them: of each case the
 * fastest. ERR_IO, ERR_INVALID name the file and the line. */
gradweir_status plan_rates_read(const char *path, struct plan_wires *wires);

#endif
