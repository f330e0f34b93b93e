/* What the arithmetic does once per step or block rather than per element: choice of the
 * instruction set, plans, factors, the fixed tree of sums. */
#include "common/arithmetic.h"

#include "common/codec.h"
#include "common/element_gradient.h"
#include "common/status.h"

#include <fenv.h>
#include <float.h>

typedef bool set_runs(void);

static bool runs_always(void)
{
    return true;
}

/* The one place that knows which sets this build has. Best first. */
#if defined(__x86_64__)
static bool runs_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool runs_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}

static const struct {
    const struct arithmetic *set;
    set_runs *runs;
} sets[] = {{&arithmetic_avx512, runs_avx512},
            {&arithmetic_avx2, runs_avx2},
            {&arithmetic_scalar, runs_always}};
#else
static const struct {
    const struct arithmetic *set;
    set_runs *runs;
} sets[] = {{&arithmetic_scalar, runs_always}};
#endif

const struct arithmetic *arithmetic_at(size_t i)
{
    for (size_t k = 0; k < sizeof sets / sizeof *sets; k++)
        if (sets[k].runs() && i-- == 0)
            return sets[k].set;
    return NULL;
}

const struct arithmetic *arithmetic_choose(const char *name)
{
    const struct arithmetic *set = arithmetic_at(0);
    for (size_t i = 1; name != NULL && set != NULL && strcmp(set->name, name) != 0; i++)
        set = arithmetic_at(i);
    return set;
}

bool arithmetic_environment_holds(void)
{
    volatile float smallest_normal = FLT_MIN, half = 0.5f, grow = 16777216.0f;
    volatile float subnormal = smallest_normal * half; /* 0 when results are flushed */
    volatile float seen = element_float(0x00400000u);  /* 2^-127, given, not computed */
    volatile float grown = seen * grow; /* 0 when subnormal operands are taken for zero */
    return fegetround() == FE_TONEAREST && element_bits(subnormal) == 0x00400000u && grown > 0.0f;
}

void arithmetic_assert_environment(void)
{
    ASSERT(arithmetic_environment_holds());
}

size_t arithmetic_states_n(enum arithmetic_algorithm algorithm, bool centered, bool momentum)
{
    switch (algorithm) {
    case ARITHMETIC_SGD: return 0;
    case ARITHMETIC_MOMENTUM:
    case ARITHMETIC_NESTEROV: return 1;
    case ARITHMETIC_RMSPROP: return 1 + (size_t)centered + (size_t)momentum;
    case ARITHMETIC_AMSGRAD: return 3;
    case ARITHMETIC_ADAM:
    case ARITHMETIC_ADAMW:
    case ARITHMETIC_LAMB: return 2;
    }
    ASSERT(!"an algorithm");
}

double arithmetic_power(double base, uint64_t n)
{
    double result = 1.0;
    for (double square = base; n > 0; n >>= 1) {
        if (n & 1u)
            result *= square;
        square *= square;
    }
    return result;
}

double arithmetic_bias(double beta, uint64_t t)
{
    return 1.0 - arithmetic_power(beta, t);
}

void arithmetic_plan_group(struct arithmetic_plan *plan, uint32_t group,
                           const struct arithmetic_group_numbers *numbers)
{
    ASSERT(group < ARITHMETIC_GROUPS_MAX);
    const bool buffered =
        plan->algorithm == ARITHMETIC_MOMENTUM || plan->algorithm == ARITHMETIC_NESTEROV;
    const bool decoupled = plan->algorithm == ARITHMETIC_ADAMW;
    const double beta1_rest = 1.0 - (buffered ? numbers->dampening : numbers->beta1);
    const double keep = decoupled ? 1.0 - numbers->learning_rate * numbers->weight_decay : 1.0;
    plan->groups[group] = (struct arithmetic_group){
        .rate = (float)numbers->learning_rate,
        .rate_bias1 = (float)(numbers->learning_rate / numbers->bias1),
        .bias1 = (float)numbers->bias1,
        .bias2_root = (float)sqrt(numbers->bias2),
        .beta1 = (float)numbers->beta1,
        .beta1_rest = (float)beta1_rest,
        .beta2 = (float)numbers->beta2,
        .beta2_rest = (float)(1.0 - numbers->beta2),
        .weight_decay = (float)numbers->weight_decay,
        .keep = (float)keep,
        .frozen = numbers->frozen,
    };
    if (plan->groups_n <= group)
        plan->groups_n = group + 1;
}

size_t arithmetic_range_at(const struct arithmetic_work *work, uint64_t at)
{
    size_t low = 0, high = work->ranges_n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (work->ranges[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

double arithmetic_clip_factor(double norm, double limit)
{
    return element_clip_factor(norm, limit);
}

float arithmetic_trust_ratio(double sum_theta, double sum_update, double weight_decay,
                             bool always_adapt)
{
    const bool adapts = weight_decay != 0.0 || always_adapt;
    if (!adapts || sum_theta <= 0.0 || sum_update <= 0.0)
        return 1.0f;
    return (float)(sqrt(sum_theta) / sqrt(sum_update));
}

size_t arithmetic_blocks(uint64_t n)
{
    return (size_t)(n / ARITHMETIC_BLOCK + (n % ARITHMETIC_BLOCK != 0));
}

uint32_t arithmetic_measure_blocks(const struct arithmetic *arithmetic, enum arithmetic_codec codec,
                                   const void *data, size_t n, double *sums)
{
    const unsigned char *at = data;
    uint32_t largest = 0;
    for (size_t block = 0; n > 0; block++) {
        const size_t piece = n < ARITHMETIC_BLOCK ? n : ARITHMETIC_BLOCK;
        struct arithmetic_measure measured;
        arithmetic->measure(codec, at, piece, &measured);
        sums[block] = measured.sum_squares;
        largest = measured.largest_bits > largest ? measured.largest_bits : largest;
        at += codec_bytes(codec, piece);
        n -= piece;
    }
    return largest;
}

void arithmetic_running_end(const struct arithmetic_running *running,
                            struct arithmetic_measure *out)
{
    double lanes[ARITHMETIC_LANES];
    memcpy(lanes, running->lanes, sizeof lanes);
    for (size_t width = ARITHMETIC_LANES / 2; width > 0; width /= 2)
        for (size_t j = 0; j < width; j++)
            lanes[j] += lanes[j + width];
    *out =
        (struct arithmetic_measure){.largest_bits = running->largest_bits, .sum_squares = lanes[0]};
}

float arithmetic_largest(uint32_t largest_bits)
{
    return element_float(largest_bits);
}

bool arithmetic_finite(uint32_t largest_bits)
{
    return largest_bits < 0x7f800000u;
}

void arithmetic_tree_init(struct arithmetic_tree *tree)
{
    tree->n = 0;
}

/* Nodes wait on a stack until their sibling comes. A right node always finds its left sibling on
 * top, unless the whole range began with it. */
bool arithmetic_tree_add(struct arithmetic_tree *tree, struct arithmetic_node node)
{
    if (node.level >= 64 || node.index > (UINT64_MAX >> node.level))
        return false;
    if (tree->n > 0) {
        const struct arithmetic_node *last = &tree->nodes[tree->n - 1];
        if ((last->index + 1) << last->level != node.index << node.level)
            return false;
    }
    while (tree->n > 0 && node.index % 2 == 1 && tree->nodes[tree->n - 1].level == node.level) {
        const struct arithmetic_node *left = &tree->nodes[--tree->n];
        node = (struct arithmetic_node){
            .index = node.index / 2, .level = node.level + 1, .sum = left->sum + node.sum};
    }
    if (tree->n == ARITHMETIC_NODES_MAX)
        return false;
    tree->nodes[tree->n++] = node;
    return true;
}

size_t arithmetic_tree_cover(uint64_t first_block, const double *sums, size_t n,
                             struct arithmetic_node nodes[ARITHMETIC_NODES_MAX])
{
    struct arithmetic_tree tree;
    arithmetic_tree_init(&tree);
    for (size_t i = 0; i < n; i++)
        ASSERT(arithmetic_tree_add(
            &tree, (struct arithmetic_node){.index = first_block + i, .sum = sums[i]}));
    memcpy(nodes, tree.nodes, tree.n * sizeof *nodes);
    return tree.n;
}

size_t arithmetic_tree_places(uint64_t first_block, uint64_t n,
                              struct arithmetic_node nodes[ARITHMETIC_NODES_MAX])
{
    size_t count = 0;
    for (uint64_t at = first_block, end = first_block + n; at < end; count++) {
        uint32_t level = 0;
        while (at % (UINT64_C(2) << level) == 0 && (UINT64_C(2) << level) <= end - at)
            level++;
        nodes[count] = (struct arithmetic_node){.index = at >> level, .level = level};
        at += UINT64_C(1) << level;
    }
    return count;
}

/* Whatever has no sibling stands for its parent, so what is left is folded from the right: 7 blocks
 * are (0..3) + ((4, 5) + 6). */
double arithmetic_tree_sum(const struct arithmetic_tree *tree)
{
    if (tree->n == 0)
        return 0.0;
    double sum = tree->nodes[tree->n - 1].sum;
    for (size_t i = tree->n - 1; i > 0; i--)
        sum = tree->nodes[i - 1].sum + sum;
    return sum;
}
