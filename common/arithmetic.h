/* Every number that becomes part of a model is computed behind this header: window averages, the
 * eight optimizers, clipping, norms, half precision. The functions per element are in
 * arithmetic_element.h, the loops over them in arithmetic_loops.h; the loops are compiled once per
 * instruction set, and every set gives the same bits: only IEEE add, subtract, multiply, divide and
 * square root, in a written order, no contraction, no libm. What needs pow or exp (weights,
 * schedules) is decided by law.c and arrives here as finished numbers.
 *
 * Lengths are elements unless they say bytes. A shard's arrays are given by their base pointers,
 * and [begin, end) are element offsets into the shard. Work on one element never reads another, so
 * a step may be cut anywhere, stopped at any tile border and resumed, with the same bits.
 *
 * Inf and NaN: finite inputs of magnitude <= magnitude_max with weights whose sum is at most 1
 * (mean) or whose products were admitted by law_judge (count) never give an Inf in an average, nor,
 * with the default magnitude_max of 1e18, in its square. The promise of equal bits holds while no
 * NaN exists: which NaN comes out of an operation on two NaNs is the compiler's choice. measure()
 * is how NaN and Inf are kept out. */
#ifndef GRADWEIR_COMMON_ARITHMETIC_H
#define GRADWEIR_COMMON_ARITHMETIC_H

#include "common/arithmetic_element.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARITHMETIC_BLOCK       65536 /* elements; shards are cut at multiples of it */
#define ARITHMETIC_ENTRIES_MAX 256   /* gradients in one average */
#define ARITHMETIC_GROUPS_MAX  16    /* parameter groups of a model */
#define ARITHMETIC_STATES_MAX  3     /* arrays of optimizer state per parameter */
#define ARITHMETIC_LANES       16    /* partial sums of a measure */
#define ARITHMETIC_COMPENSATED_MIN                                                                 \
    64 /* averages over at least this many gradients carry a Kahan term */

/* In which numbers a gradient travels and waits; codec.h has names, sizes and layout. */
enum arithmetic_codec { ARITHMETIC_F32, ARITHMETIC_BF16, ARITHMETIC_F16, ARITHMETIC_INT8 };

enum arithmetic_algorithm {
    ARITHMETIC_SGD,
    ARITHMETIC_MOMENTUM, /* torch.optim.SGD(momentum) */
    ARITHMETIC_NESTEROV,
    ARITHMETIC_RMSPROP, /* centered and momentum are options */
    ARITHMETIC_ADAM,    /* weight decay is added to the gradient */
    ARITHMETIC_AMSGRAD,
    ARITHMETIC_ADAMW, /* weight decay acts on the parameter */
    ARITHMETIC_LAMB,  /* timm.optim.Lamb without its own clipping; needs two phases */
};

enum arithmetic_phase {
    ARITHMETIC_WHOLE,   /* one pass: moments and parameters; every algorithm but LAMB */
    ARITHMETIC_MOMENTS, /* LAMB, first pass: moments only, then norms by lamb_sum */
    ARITHMETIC_APPLY,   /* LAMB, second pass: reads the moments, writes the parameters */
};

/* The numbers of one parameter group in one step, all rounded once from double by
 * arithmetic_plan_group. */
struct arithmetic_group {
    float rate;       /* learning rate × the group's scale */
    float rate_bias1; /* rate / (1 - beta1^t) */
    float bias1;      /* 1 - beta1^t */
    float bias2_root; /* sqrt(1 - beta2^t) */
    float beta1,
        beta1_rest; /* beta1 and 1 - beta1; momentum and 1 - dampening for MOMENTUM and NESTEROV */
    float beta2,
        beta2_rest; /* beta2 and 1 - beta2; alpha and 1 - alpha for RMSPROP (momentum in beta1) */
    float weight_decay;
    float keep;  /* 1 - rate × weight decay (ADAMW) */
    bool frozen; /* parameters and state are carried over unchanged */
};

struct arithmetic_entry {
    uint32_t slot; /* which gradient, as an index into struct arithmetic_sources */
    float weight; /* as the STEP record says: final, clip per gradient and normalisation included */
};

/* The window by stacks (arithmetic_stacks.h): what stripes of one age do in a step. `behind` tells
 * which turn made a stripe's front: 0: none, the stripe is averaged from its gradients. */
struct arithmetic_age {
    uint32_t behind; /* log positions from that turn to this step; from 1 to the window */
    float weight;    /* of what the front holds, in this step */
};

struct arithmetic_stacks {
    uint32_t window;   /* log positions between two turns of a stripe; 0: no stacks */
    uint32_t every;    /* fronts are kept of log positions that are multiples of it */
    uint32_t fronts;   /* arrays for fronts: the window / every, rounded up */
    uint32_t fresh;    /* the newest entries, which the step before did not have */
    uint64_t position; /* log position behind the newest entry */
    float rescale;     /* what the backs are multiplied by */
    struct arithmetic_age ages[ARITHMETIC_ENTRIES_MAX]; /* by age, for ages from fresh to window */
};

/* One optimizer step, the same for every shard: what a STEP record (and its SUMMED) says, ready to
 * use. */
struct arithmetic_plan {
    enum arithmetic_algorithm algorithm;
    enum arithmetic_phase phase;
    bool first;    /* the first step ever: momentum buffers start with the gradient itself */
    bool centered; /* RMSPROP */
    bool momentum; /* RMSPROP keeps a momentum buffer */
    float epsilon;
    float scale; /* factor on the average (clip_average); 1 if none. Multiplying by 1 changes no bit
                  */
    uint32_t entries_n; /* 1..ARITHMETIC_ENTRIES_MAX, in log order */
    uint32_t groups_n;
    struct arithmetic_entry entries[ARITHMETIC_ENTRIES_MAX];
    struct arithmetic_group groups[ARITHMETIC_GROUPS_MAX];
    struct arithmetic_stacks stacks; /* window 0: direct */
};

/* What arithmetic_plan_group turns into float32. beta1 is the momentum of MOMENTUM, NESTEROV and
 * RMSPROP, beta2 the alpha of RMSPROP. bias1 = 1 - beta1^t and bias2 = 1 - beta2^t: from the STEP
 * record, or for a group with its own betas from arithmetic_bias. */
struct arithmetic_group_numbers {
    double learning_rate; /* from the record, times the group's scale */
    double weight_decay;
    double beta1, beta2;
    double dampening; /* MOMENTUM and NESTEROV; else 0 */
    double bias1, bias2;
    bool frozen;
};

/* The gradients that wait on a shard: slot s lies at base + s × stride_bytes, as `codec`; its first
 * element begins a block of INT8. The rest is read and written by plans with stacks only; two calls
 * at once must not have a common element of it. */
struct arithmetic_sources {
    const void *base;
    size_t stride_bytes;
    enum arithmetic_codec codec;
    float *back;         /* of the shard */
    float *fronts;       /* front k lies at fronts + k × front_stride */
    size_t front_stride; /* elements */
    uint64_t first;      /* the shard's first element, counted in the model */
    uint32_t stripe;     /* elements of the model that turn together */
};

/* A piece of a shard that belongs to one tensor, hence to one group. */
struct arithmetic_range {
    uint64_t begin, end; /* in the shard */
    uint32_t group;
    uint32_t tensor; /* index into work.ratios */
};

/* The arrays a step works on: base pointers of the shard, borrowed for the call. parameters_next
 * may equal parameters, and state_next[k] may equal state[k]; nothing else may overlap. Unused
 * states are NULL. */
struct arithmetic_work {
    struct arithmetic_sources sources;
    const float *average; /* the finished window average of the shard; NULL: average here, from the
                             sources */
    const float *parameters;
    float *parameters_next;
    const float *state[ARITHMETIC_STATES_MAX];
    float *state_next[ARITHMETIC_STATES_MAX];
    const struct arithmetic_range *ranges; /* sorted; they cover the shard without gap or overlap */
    size_t ranges_n;
    const float *ratios; /* LAMB's APPLY: trust ratio per tensor; else NULL */
    bool streams; /* store parameters_next past the caches: it is large, and nobody reads it soon */
};

struct arithmetic_measure {
    uint32_t largest_bits; /* of the largest magnitude; bits of Inf or NaN when there is one */
    double sum_squares;    /* NaN or Inf when an element is */
};

/* A measure under way: of one block (or less), whose pieces come one after the other. Begins as
 * zeros. */
struct arithmetic_running {
    double lanes[ARITHMETIC_LANES];
    uint32_t largest_bits;
};

/* One set of loops. All sets give the same bits; no member is optional. */
struct arithmetic {
    const char *name; /* scalar, avx2, avx512 */

    /* to[i] = from[i] × scale, rounded to nearest even into the codec. to may equal from for F32.
     * INT8: from begins a block of its own. */
    void (*encode)(enum arithmetic_codec codec, float scale, const float *from, size_t n, void *to);

    /* Exact widening; INT8: from begins a block. */
    void (*decode)(enum arithmetic_codec codec, const void *from, size_t n, float *to);

    /* Error feedback: to = encode(from + rest), and rest becomes (from + rest) - decode(to), which
     * is exact; but where the sum is not finite rest stays as it was (INT8: in the whole block). */
    void (*encode_rest)(enum arithmetic_codec codec, const float *from, size_t n, float *rest,
                        void *to);

    /* encode_rest (rest NULL: encode, with a scale of 1), and measure_on of what came of it. */
    void (*encode_on)(enum arithmetic_codec codec, const float *from, size_t n, float *rest,
                      void *to, struct arithmetic_running *running);

    /* to[i] += decode(from)[i]: mass that was sent comes back. */
    void (*decode_add)(enum arithmetic_codec codec, const void *from, size_t n, float *to);

    /* One piece of at most a block. The order of the sum is fixed by the piece's begin: element i
     * goes to lane i mod 16 in double, then the lanes are added in a binary tree. int8: a block's
     * bytes are squared and added as integers, times scale × scale in double, one block after the
     * other; a block whose scale is not finite is a NaN. Pieces: arithmetic_measure_blocks. */
    void (*measure)(enum arithmetic_codec codec, const void *data, size_t n,
                    struct arithmetic_measure *out);

    /* The same piece by piece, with the same bits: each piece but the last has a multiple of
     * ARITHMETIC_LANES (int8: CODEC_BLOCK) elements. arithmetic_running_end tells the result. */
    void (*measure_on)(enum arithmetic_codec codec, const void *data, size_t n,
                       struct arithmetic_running *running);

    /* out[i - begin] = scale × Σ_k weight_k × gradient_k[i], terms rounded and added in log order;
     * with a Kahan term from ARITHMETIC_COMPENSATED_MIN entries on. */
    void (*average)(const struct arithmetic_plan *plan, const struct arithmetic_sources *sources,
                    size_t begin, size_t end, float *out);

    /* One tile of a step, in the plan's phase. */
    void (*step)(const struct arithmetic_plan *plan, const struct arithmetic_work *work,
                 size_t begin, size_t end);

    /* LAMB between its phases: Σ u² over one piece (one tensor within one block, one group), u
     * being the update direction from the moments in state_next. Same order as measure. */
    double (*lamb_sum)(const struct arithmetic_plan *plan, const struct arithmetic_work *work,
                       const struct arithmetic_range *piece);
};

/* The sets, for the table in arithmetic.c; everybody else asks arithmetic_choose. */
extern const struct arithmetic arithmetic_scalar, arithmetic_avx2, arithmetic_avx512;

/* The set called name, or for NULL the best one this machine runs. NULL when the name is unknown or
 * the machine cannot run it. The sets are constants: keep the pointer. */
const struct arithmetic *arithmetic_choose(const char *name);

/* The i-th set this machine runs, NULL past the last. */
const struct arithmetic *arithmetic_at(size_t i);

/* Rounding to nearest, subnormals neither flushed nor taken for zero. Asserted before each step:
 * libraries that are loaded later (some set flush-to-zero when loaded) must not change our bits in
 * silence. */
bool arithmetic_environment_holds(void);
void arithmetic_assert_environment(void);

/* The arrays of state an algorithm keeps: 0..ARITHMETIC_STATES_MAX. Order: momentum and Nesterov:
 * buffer; RMSPROP: square average, then gradient average if centered, then buffer if momentum; the
 * Adam family and LAMB: m, v, and for AMSGRAD the maximum of v. All start at zero. */
size_t arithmetic_states_n(enum arithmetic_algorithm algorithm, bool centered, bool momentum);

/* base^n by squaring, multiplications in double only: same bits on every machine. */
double arithmetic_power(double base, uint64_t n);

/* 1 - beta^t, the bias correction of step t (1, 2, ...). */
double arithmetic_bias(double beta, uint64_t t);

/* Fills plan->groups[group] and raises groups_n. plan->algorithm is set before. */
void arithmetic_plan_group(struct arithmetic_plan *plan, uint32_t group,
                           const struct arithmetic_group_numbers *numbers);

/* The index of the range that holds element `at` of the shard; ranges_n past the end. */
size_t arithmetic_range_at(const struct arithmetic_work *work, uint64_t at);

/* min(1, limit / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; limit 0: 1. A NaN norm gives
 * NaN. */
double arithmetic_clip_factor(double norm, double limit);

/* LAMB: norm(theta) / norm(u) from the sums of squares; 1 if either is 0, or if there is no weight
 * decay and always_adapt is off. */
float arithmetic_trust_ratio(double sum_theta, double sum_update, double weight_decay,
                             bool always_adapt);

/* Measures n elements that start at a block border: sums[b] is block b's sum of squares, for
 * arithmetic_blocks(n) blocks. Returns the bits of the largest magnitude. */
uint32_t arithmetic_measure_blocks(const struct arithmetic *arithmetic, enum arithmetic_codec codec,
                                   const void *data, size_t n, double *sums);

void arithmetic_running_end(const struct arithmetic_running *running,
                            struct arithmetic_measure *out);

size_t arithmetic_blocks(uint64_t n);

/* Largest magnitude as a float; true when it is finite. */
float arithmetic_largest(uint32_t largest_bits);
bool arithmetic_finite(uint32_t largest_bits);

/* The fixed binary tree over block index. Node (level, index) stands for the blocks [index <<
 * level, (index + 1)
 * << level). A shard sends the few nodes that cover its blocks; whoever joins the nodes of all
 * shards gets the bits of one shard. Per tensor (LAMB) the leaves are the tensor's pieces, numbered
 * by the model's blocks. */
#define ARITHMETIC_NODES_MAX 128

struct arithmetic_node {
    uint64_t index;
    uint32_t level;
    double sum;
};

/* The nodes that cover blocks [first_block, first_block + n): at most ARITHMETIC_NODES_MAX. Returns
 * how many. */
size_t arithmetic_tree_cover(uint64_t first_block, const double *sums, size_t n,
                             struct arithmetic_node nodes[ARITHMETIC_NODES_MAX]);

/* The same nodes' places without their sums: what a peer's bare sums belong to. n < 2^40. */
size_t arithmetic_tree_places(uint64_t first_block, uint64_t n,
                              struct arithmetic_node nodes[ARITHMETIC_NODES_MAX]);

/* A joining of nodes that arrive in block order, from any cut. */
struct arithmetic_tree {
    size_t n;
    struct arithmetic_node nodes[ARITHMETIC_NODES_MAX];
};
void arithmetic_tree_init(struct arithmetic_tree *tree);

/* False, and nothing added, when the node does not follow the last one without a gap (a peer's
 * mistake). */
bool arithmetic_tree_add(struct arithmetic_tree *tree, struct arithmetic_node node);
double arithmetic_tree_sum(const struct arithmetic_tree *tree);

#endif
