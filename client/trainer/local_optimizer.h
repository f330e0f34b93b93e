/* Adam after clipping by the global norm: the optimizer of a run without a server. With a server
 * the shards step. */
#ifndef GRADWEIR_TRAINER_LOCAL_OPTIMIZER_H
#define GRADWEIR_TRAINER_LOCAL_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct local_optimizer {
    size_t n;
    double beta1;
    double beta2;
    double epsilon;
    double norm_max; /* 0: no clipping */
    uint64_t steps;
    float *m; /* [n] */
    float *v; /* [n] */
};

/* False when there is no memory. deinit accepts what a failed init left. */
bool local_optimizer_init(struct local_optimizer *optimizer, size_t n, double epsilon,
                          double norm_max);
void local_optimizer_deinit(struct local_optimizer *optimizer);

/* One step on parameters [n]; returns the norm before clipping. A gradient whose norm is not finite
 * changes nothing. */
double local_optimizer_step(struct local_optimizer *optimizer, double learning_rate,
                            const float *gradient, float *parameters);

#endif
