/* The round of a step: sums over this range, measured behind each tile, told when all are there.
 * Which, and in what order, is common/sums.h's. In memory they lie as they are measured: one number
 * a block (clip of the average), or one a piece (a tensor within a block; LAMB), first of all
 * parameters, then of all updates. */
#include "common/sums.h"
#include "server/shard/digests.h"
#include "server/shard/shard_internal.h"

double *shard_sums(struct shard *shard)
{
    return at_offset(shard, shard->at.sums);
}

/* The range begins at a block border, so blocks of the range are blocks of the model. */
static uint64_t piece_blocks(const struct shard *shard, const struct arithmetic_range *range)
{
    return (range->end - 1) / shard->block + 1 - range->begin / shard->block;
}

uint64_t sums_pieces(const struct model *model, const struct model_range *range)
{
    uint64_t pieces = 0, first, count;
    for (uint32_t i = 0; i < model->parameter_tensors; i++)
        if (sums_blocks(model, model->by_offset[i], range, &first, &count))
            pieces += count;
    return pieces;
}

void shard_measure_average(struct shard *shard, const struct arithmetic *arithmetic, uint64_t begin,
                           uint64_t end)
{
    const float *average = shard_average(shard);
    double *sums = shard_sums(shard);
    ASSERT(begin % shard->block == 0);
    digests_average(shard, begin, end);
    for (uint64_t at = begin; at < end; at += shard->block) {
        struct arithmetic_measure piece;
        const uint64_t rest = end - at;
        arithmetic->measure(ARITHMETIC_F32, average + at, rest < shard->block ? rest : shard->block,
                            &piece);
        sums[at / shard->block] = piece.sum_squares;
    }
}

static void measure_piece(struct shard *shard, const struct arithmetic *arithmetic,
                          const struct arithmetic_work *work, const struct arithmetic_range *piece,
                          uint64_t number)
{
    struct arithmetic_measure theta;
    arithmetic->measure(ARITHMETIC_F32, work->parameters + piece->begin,
                        (size_t)(piece->end - piece->begin), &theta);
    shard_sums(shard)[number] = theta.sum_squares;
    shard_sums(shard)[shard->sum_pieces + number] =
        arithmetic->lamb_sum(shard_plan(shard), work, piece);
}

/* Pieces of the range before element `end`, a block border. */
static uint64_t pieces_before(struct shard *shard, uint64_t end)
{
    const struct arithmetic_range *ranges = at_offset(shard, shard->at.pieces);
    uint64_t count = 0;
    for (uint32_t i = 0; i < shard->pieces_count && ranges[i].begin < end; i++) {
        struct arithmetic_range range = ranges[i];
        range.end = range.end < end ? range.end : end;
        count += piece_blocks(shard, &range);
    }
    return count;
}

void shard_job_sums(struct shard *shard, uint64_t begin, struct shard_job_sums *sums)
{
    *sums = (struct shard_job_sums){.block = shard->block};
    if (shard->step.phase == STEP_AVERAGING)
        sums->average = shard_sums(shard) + begin / shard->block;
    if (shard->step.phase != STEP_MOMENTS)
        return;
    sums->theta = shard_sums(shard) + pieces_before(shard, begin);
    sums->update = sums->theta + shard->sum_pieces;
}

void shard_digest_job(struct shard *shard, uint64_t begin, uint64_t end)
{
    if (shard->step.phase == STEP_AVERAGING)
        digests_average(shard, begin, end);
    else
        digests_step(shard, begin, end);
}

bool shard_digests(const struct shard *shard)
{
    return digests_kept_up(shard);
}

bool shard_measures_update(const struct shard *shard)
{
    return digests_kept_up(shard) || shard->step.phase == STEP_MOMENTS;
}

void shard_measure_update(struct shard *shard, const struct arithmetic *arithmetic, uint64_t begin,
                          uint64_t end)
{
    struct arithmetic_work work;
    uint64_t number = 0;
    digests_step(shard, begin, end);
    if (shard->step.phase != STEP_MOMENTS)
        return;
    ASSERT(begin % shard->block == 0);
    shard_work(shard, &work);
    for (size_t i = 0; i < work.ranges_n && work.ranges[i].begin < end; i++) {
        struct arithmetic_range piece = work.ranges[i];
        const uint64_t stop = piece.end;
        for (; piece.begin < stop && piece.begin < end; piece.begin = piece.end, number++) {
            const uint64_t border = (piece.begin / shard->block + 1) * shard->block;
            piece.end = border < stop ? border : stop;
            if (piece.begin >= begin)
                measure_piece(shard, arithmetic, &work, &piece, number);
        }
    }
}

/* Nodes that wait to be told: a message whenever there are enough. */
struct teller {
    struct shard *shard;
    struct message_sums *sums; /* within an action; NULL: none begun */
    uint64_t count;
};

static void begin_message(struct teller *teller)
{
    struct shard *shard = teller->shard;
    teller->sums = &tell(shard, MESSAGE_SUMS)->sums;
    *teller->sums = (struct message_sums){.version = shard->step.record.version,
                                          .round = 1,
                                          .first_block = shard->options.member.first / shard->block,
                                          .blocks = shard->blocks,
                                          .first_node = teller->count};
}

static void tell_series(struct teller *teller, uint64_t first, const double *sums, uint64_t count)
{
    struct arithmetic_node nodes[ARITHMETIC_NODES_MAX];
    const size_t n = arithmetic_tree_cover(first, sums, (size_t)count, nodes);
    for (size_t i = 0; i < n; i++) {
        if (!teller->sums || teller->sums->nodes_count == SUM_NODES_MAX)
            begin_message(teller);
        teller->sums->nodes[teller->sums->nodes_count++] = nodes[i].sum;
        teller->count++;
    }
}

void sums_tell(struct shard *shard)
{
    struct teller teller = {.shard = shard};
    const uint64_t first_block = shard->options.member.first / shard->block;
    const struct arithmetic_range *ranges = at_offset(shard, shard->at.pieces);
    const double *at = shard_sums(shard);
    if (shard->sum_pieces == 0)
        tell_series(&teller, first_block, at, shard->blocks);
    for (uint32_t i = 0; shard->sum_pieces > 0 && i < shard->pieces_count; i++) {
        const uint64_t first = first_block + ranges[i].begin / shard->block;
        const uint64_t count = piece_blocks(shard, &ranges[i]);
        tell_series(&teller, first, at, count);
        tell_series(&teller, first, at + shard->sum_pieces, count);
        at += count;
    }
    if (!teller.sums)
        begin_message(&teller); /* an empty range says that it has nothing to say */
}
