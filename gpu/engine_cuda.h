/* The inside of the engine that is one GPU, for engine_cuda*.c alone. Whatever is on the GPU has
 * been allocated at open; a stream for each group, the first of them for learning too, carries the
 * work out in the order given, and a sequence that comes again and again is a CUDA graph. */
#ifndef GRADWEIR_GPU_ENGINE_CUDA_H
#define GRADWEIR_GPU_ENGINE_CUDA_H

#include "client/trainer/engine.h"
#include "client/trainer/network_math.h"
#include "client/trainer/rollout.h"
#include "gpu/cublas_link.h"
#include "gpu/kernels_engine.h"
#include "gpu/kernels_environment.h"
#include "gpu/kernels_learn.h"

#include <cuda_runtime_api.h>

enum { CUDA_BLOCKS_MAX = 128, CUDA_ACTS = 4, CUDA_GRADIENTS = 2 };

/* Run once as it is, which loads the kernels; then captured, and replayed from there on. */
struct cuda_graph {
    bool warm;
    cudaGraphExec_t exec;
};

/* Who carries out a pass over the network: the context of network_math. */
struct cuda_math {
    struct engine_state *state;
    struct cublas_stream blas;
    cudaStream_t stream;
    void *scratch; /* of sums over rows */
};

/* Arrays of a group, in the GPU's memory or in pinned memory of the host. */
struct cuda_act_arrays {
    float *observations, *finals, *actions, *log_probabilities, *values, *final_values;
};

struct cuda_group {
    size_t first, n;
    struct cuda_math math;
    struct network_room room;
    struct cuda_act_arrays device, host;
    uint64_t *turn;
    struct cuda_graph graphs[CUDA_ACTS]; /* by what is wanted: see engine_cuda.c */
    struct engine_act asked;             /* the act under way */
};

/* The samples of a rollout, [T, N] and so on as struct rollout has them, on the GPU. */
struct cuda_rollout {
    float *observations, *actions, *log_behaviour, *rewards, *values, *next_values;
    uint8_t *terminated, *truncated;
    float *advantages, *targets, *log_proximal, *log_ratios;
};

struct cuda_minibatch {
    uint32_t *order, *order_host;
    struct network_room room;
    float *observations, *actions;
    float *columns[GPU_COLUMNS]; /* log_behaviour, log_proximal, advantages, targets, old values */
    struct loss_arrays arrays;
    struct statistics *statistics;
    struct loss_centre *centre;
    struct loss_sums *sums, *sums_host;
    void *scratch; /* of the loss and the statistics */
    float *gradient, *gradient_host;
};

/* A gradient's sequence is for one size and one set of settings: two sizes occur. */
struct cuda_gradient {
    size_t n;
    bool stays; /* on the GPU */
    struct loss_settings loss;
    struct cuda_graph graph;
};

/* Environments on the GPU; only if they are its own. */
struct cuda_environments {
    struct gpu_environments all;
    float *final_observations;
    double *scores, *scores_host; /* [T, N] */
    float *rewards_host;          /* [T, N] */
    uint8_t *terminated_host, *truncated_host;
    struct cuda_graph graph;
    bool begun;
};

struct engine_state {
    struct engine_options options;
    size_t samples, width; /* of a rollout; floats of an action */
    int gpu;
    char name[80];
    struct cublas_link cublas;
    size_t groups_n;
    struct cuda_group groups[ENGINE_GROUPS_MAX];
    void *device_blocks[CUDA_BLOCKS_MAX], *host_blocks[CUDA_BLOCKS_MAX];
    size_t device_n, host_n, device_bytes;
    float *parameters, *parameters_host;
    cudaEvent_t loaded; /* the newest parameters are there */
    struct cuda_rollout rollout;
    struct cuda_minibatch minibatch;
    struct cuda_gradient gradients[CUDA_GRADIENTS];
    size_t gradient_next; /* whose place the next new sequence takes */
    struct cuda_environments environments;
    gradweir_status broken; /* of the first failure; the sentence in reason */
    struct engine_reason reason;
};

/* The operations of a pass; the context is a struct cuda_math. */
extern const struct network_math network_math_cuda;

/* Remembers the first failure; 0 is none. Returns whether all is well so far. */
bool cuda_note(struct engine_state *state, int error, const char *what);

/* Runs what `enqueue` puts on the stream: as it is, or as a graph. */
struct cuda_sequence {
    cudaStream_t stream;
    struct cuda_graph *graph;
    void (*enqueue)(struct engine_state *state, void *context);
    void *context;
};
void cuda_run(struct engine_state *state, const struct cuda_sequence *sequence);

/* Waits for the stream, a minute at most, and returns what has become of the engine. */
gradweir_status cuda_wait(struct engine_state *state, cudaStream_t stream);

/* Copies on a stream; which way is known by the pointers. */
void cuda_copy(struct engine_state *state, cudaStream_t stream, const void *from, void *to,
               size_t bytes);

/* A pass of `batch` observations in a room of that math's. */
struct network_pass cuda_pass(struct cuda_math *math, const float *observations, size_t batch,
                              struct network_room *room);

/* The policy of the present parameters. */
struct policy cuda_policy(const struct engine_state *state);

/* The first number of this worker's environments and draws, of all workers of the seed. */
uint64_t cuda_first_number(const struct engine_state *state);

/* The members of the engine, by file. */
gradweir_status engine_cuda_probe(const struct engine_options *options,
                                  struct engine_reason *reason);
gradweir_status engine_cuda_open(const struct engine_options *options, struct engine_state **state,
                                 struct engine_reason *reason);
void engine_cuda_close(struct engine_state *state);
gradweir_status engine_cuda_collect(struct engine_state *state, struct rollout *rollout);
gradweir_status engine_cuda_estimate(struct engine_state *state, const struct rollout *rollout,
                                     float *advantages);
gradweir_status engine_cuda_gradient(struct engine_state *state,
                                     const struct engine_minibatch *minibatch, float *gradient,
                                     struct engine_losses *losses);

#endif
