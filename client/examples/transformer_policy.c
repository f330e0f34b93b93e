/* See transformer_policy.h. */
#include "client/examples/transformer_policy.h"

#include "client/examples/transformer_layers.h"

#include <stdlib.h>
#include <string.h>
#include <tgmath.h>

/* Returns that hardly differ are not blown up to differ by one. */
static const double DEVIATION_LEAST = 0.05;

struct transformer_rollout *transformer_rollout_new(const struct transformer_shape *shape,
                                                    const struct transformer_settings *settings)
{
    struct transformer_rollout *rollout = calloc(1, sizeof *rollout);
    if (rollout == NULL)
        return NULL;
    rollout->settings = *settings;
    rollout->length = shape->places + 1;
    rollout->words_count = shape->words;
    const size_t n = settings->batch * rollout->length;
    rollout->words = calloc(n, sizeof *rollout->words);
    rollout->log_chance = calloc(n, sizeof(real));
    rollout->reward = calloc(n, sizeof(real));
    rollout->advantage = calloc(n, sizeof(real));
    rollout->said = calloc(settings->batch, sizeof(real));
    if (rollout->words != NULL && rollout->log_chance != NULL && rollout->reward != NULL &&
        rollout->advantage != NULL && rollout->said != NULL)
        return rollout;
    transformer_rollout_free(rollout);
    return NULL;
}

void transformer_rollout_free(struct transformer_rollout *rollout)
{
    if (rollout == NULL)
        return;
    free(rollout->words);
    free(rollout->log_chance);
    free(rollout->reward);
    free(rollout->advantage);
    free(rollout->said);
    free(rollout);
}

static void make_prompts(struct transformer_rollout *rollout, uint64_t seed)
{
    for (size_t b = 0; b < rollout->settings.batch; b++) {
        const uint64_t bits = transformer_mix(seed + b / rollout->settings.samples);
        rollout->words[b * rollout->length] = (int)(1 + bits % TRANSFORMER_STRIDES);
        rollout->words[b * rollout->length + 1] = (int)((bits >> 32) % rollout->words_count);
    }
}

/* A word by the chances, with a uniform number of `bits`. */
static size_t draw(const real *chances, size_t n, uint64_t bits)
{
    double rest = (double)(bits >> 11) / (double)(UINT64_C(1) << 53);
    for (size_t i = 0; i + 1 < n; i++) {
        rest -= (double)chances[i];
        if (rest < 0)
            return i;
    }
    return n - 1;
}

/* One word of each sequence, from the last row of its scores. Ranks other than 0 say 0. */
static void choose(struct transformer_rollout *rollout, real *scores, size_t rows, bool drawing,
                   uint64_t seed)
{
    const size_t n = rollout->words_count;
    for (size_t b = 0; b < rollout->settings.batch; b++) {
        real *chances = scores + (b * rows + rows - 1) * n;
        transformer_softmax(chances, n);
        rollout->said[b] = drawing ? (real)draw(chances, n, transformer_mix(seed + b)) : 0;
    }
}

/* What was said is the word at `place`. False: it is none. */
static bool write_down(struct transformer_rollout *rollout, const real *scores, size_t rows,
                       size_t place)
{
    const size_t n = rollout->words_count;
    for (size_t b = 0; b < rollout->settings.batch; b++) {
        const size_t at = b * rollout->length + place;
        if (!(rollout->said[b] >= 0 && rollout->said[b] < (real)n))
            return false;
        rollout->words[at] = (int)rollout->said[b];
        rollout->log_chance[at] =
            log(scores[(b * rows + rows - 1) * n + (size_t)rollout->words[at]]);
    }
    return true;
}

static void judge(struct transformer_rollout *rollout)
{
    double sum = 0;
    for (size_t b = 0; b < rollout->settings.batch; b++) {
        const int *words = rollout->words + b * rollout->length;
        for (size_t place = TRANSFORMER_PROMPT; place < rollout->length; place++) {
            const int right = (words[place - 1] + words[0]) % (int)rollout->words_count;
            const bool earned = words[place] == right;
            rollout->reward[b * rollout->length + place] = earned ? 1 : 0;
            sum += earned ? 1 : 0;
        }
    }
    rollout->mean_reward =
        sum / (double)(rollout->settings.batch * (rollout->length - TRANSFORMER_PROMPT));
}

bool transformer_sample(struct transformer_rollout *rollout, const struct transformer_model *model,
                        struct transformer_pass *pass, const struct transformer_team *team,
                        uint64_t seed)
{
    size_t from = 0;
    make_prompts(rollout, transformer_mix(seed + 1));
    for (size_t place = TRANSFORMER_PROMPT; place < rollout->length; place++) {
        if (!transformer_forward(pass, rollout->words, rollout->length, from, place))
            return false;
        real *scores = transformer_scores(pass);
        choose(rollout, scores, place - from, model->rank == 0, transformer_mix(seed << 8 ^ place));
        if (!team->sum(team->context, rollout->said, rollout->settings.batch) ||
            !write_down(rollout, scores, place - from, place))
            return false;
        from = place;
    }
    judge(rollout);
    transformer_advantages(rollout);
    return true;
}

/* The return of a word: its reward and those of later words, discounted. */
static void returns(const struct transformer_rollout *rollout, const real *reward, real *to)
{
    real later = 0;
    for (size_t place = rollout->length; place-- > TRANSFORMER_PROMPT;) {
        later = reward[place] + (real)rollout->settings.discount * later;
        to[place] = later;
    }
}

/* Subtracts what the samples of a prompt have on average at a place; the sum of squares left. */
static double centre(const struct transformer_rollout *rollout, real *first)
{
    const size_t samples = rollout->settings.samples, length = rollout->length;
    double squares = 0;
    for (size_t place = TRANSFORMER_PROMPT; place < length; place++) {
        real mean = 0;
        for (size_t s = 0; s < samples; s++)
            mean += first[s * length + place] / (real)samples;
        for (size_t s = 0; s < samples; s++) {
            first[s * length + place] -= mean;
            squares += (double)(first[s * length + place] * first[s * length + place]);
        }
    }
    return squares;
}

void transformer_advantages(struct transformer_rollout *rollout)
{
    const size_t batch = rollout->settings.batch, length = rollout->length;
    double squares = 0;
    for (size_t b = 0; b < batch; b++)
        returns(rollout, rollout->reward + b * length, rollout->advantage + b * length);
    for (size_t b = 0; b < batch; b += rollout->settings.samples)
        squares += centre(rollout, rollout->advantage + b * length);
    const double n = (double)(batch * (length - TRANSFORMER_PROMPT));
    const real scale = (real)(1 / (sqrt(squares / n) + DEVIATION_LEAST));
    for (size_t i = 0; i < batch * length; i++)
        rollout->advantage[i] *= scale;
}

/* The loss of one word, -min(r A, clip(r) A), where r is its chance now by its chance then; scores
 * become derivatives: those of the softmax's logarithm are [it is the word] - chance. */
static double word_loss(const struct transformer_rollout *rollout, size_t at, double n,
                        real *scores)
{
    const double a = (double)rollout->advantage[at], clip = rollout->settings.clip;
    const size_t word = (size_t)rollout->words[at];
    transformer_softmax(scores, rollout->words_count);
    const double ratio = (double)exp(log(scores[word]) - rollout->log_chance[at]);
    const bool clipped = a > 0 ? ratio > 1 + clip : ratio < 1 - clip;
    const double slope = clipped ? 0 : -a * ratio / n;
    for (size_t i = 0; i < rollout->words_count; i++)
        scores[i] = (real)slope * ((i == word ? 1 : 0) - scores[i]);
    return -a * (clipped ? (a > 0 ? 1 + clip : 1 - clip) : ratio) / n;
}

double transformer_loss(const struct transformer_rollout *rollout, real *scores, double *share)
{
    const size_t batch = rollout->settings.batch, rows = rollout->length - 1;
    const double n = (double)(batch * (rollout->length - TRANSFORMER_PROMPT));
    const size_t words = rollout->words_count;
    double loss = 0, clipped = 0;
    for (size_t b = 0; b < batch; b++) {
        for (size_t row = 0; row < rows; row++) {
            real *of_row = scores + (b * rows + row) * words;
            const size_t at = b * rollout->length + row + 1;
            if (row + 1 < TRANSFORMER_PROMPT) {
                memset(of_row, 0, words * sizeof *of_row);
                continue;
            }
            const bool matters = rollout->advantage[at] != 0;
            loss += word_loss(rollout, at, n, of_row);
            clipped += matters && of_row[rollout->words[at]] == 0 ? 1 / n : 0;
        }
    }
    if (share != NULL)
        *share = clipped;
    return loss;
}

bool transformer_learn(const struct transformer_rollout *rollout, struct transformer_pass *pass,
                       double *loss, double *share)
{
    const size_t length = rollout->length;
    if (!transformer_forward(pass, rollout->words, length, 0, length - 1))
        return false;
    *loss = transformer_loss(rollout, transformer_scores(pass), share);
    return transformer_backward(pass, rollout->words, length);
}
