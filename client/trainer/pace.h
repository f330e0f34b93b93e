/* Time in the trainer: the sleep of --pace, and the clocks of the summary. */
#ifndef GRADWEIR_TRAINER_PACE_H
#define GRADWEIR_TRAINER_PACE_H

#include <stdint.h>

/* Sleeps as long as a slow environment or accelerator would work; 0 is no sleep. */
void pace_sleep(uint64_t milliseconds);

/* The same after work that began when this process had used `cpu_s`, for a worker that is
 * `slowness` times as slow: the sleep is so many times as long, and what the work took is made up
 * as well. */
void pace_sleep_after(uint64_t milliseconds, double slowness, double cpu_s);

double pace_wall_seconds(void); /* from an arbitrary start */
double pace_cpu_seconds(void);  /* of this process so far */

#endif
