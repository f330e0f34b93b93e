/* Where everything lies in the arena, how many bytes that is, and why. */
#include "server/shard/digests.h"
#include "server/shard/shard_internal.h"

#include "common/checksum.h"
#include "common/codec.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const uint64_t alignment = 64;

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

/* Arrays that a step reads side by side must not begin at addresses with the same low bits: they
 * would meet in the same few lines of the first cache, and all come to the end of a page at once,
 * which costs a step of Adam a third. So large ones begin so many cache lines further on, another
 * number for each kind. */
enum { APART_BYTES = 1 << 20, APART_SLOTS = 9, APART_PARAMETERS = 13, APART_STATES = 21 };

static uint64_t stride_of(uint64_t bytes, uint64_t lines)
{
    return round_up(bytes) + (bytes >= APART_BYTES ? lines * alignment : 0);
}

/* Everything one record can change: half of struct ledger at most (a window and one worker), and
 * every slot once or twice. */
static uint64_t journal_bytes(const struct shard_options *options)
{
    return sizeof(struct ledger) / 2 + 2 * options->member.slots * (sizeof(struct slot) + 32) +
           4096;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool in_range(const struct model_tensor *tensor, const struct model_range *range)
{
    return tensor->kind == MODEL_PARAMETER && tensor->offset < range->first + range->elements &&
           tensor->offset + tensor->elements > range->first && range->elements > 0;
}

static uint32_t count_pieces(const struct model *model, const struct shard_options *options)
{
    const struct model_range range =
        model_shard(model, options->member.members, options->member.shard);
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->tensors_count; i++)
        count += in_range(&model->tensors[i], &range);
    return count;
}

/* Of the larger of the two bodies: a gradient in the codec, first parameters in float32. */
static uint32_t chunks_of(const struct shard *shard, uint64_t chunk_bytes)
{
    const uint64_t coded = codec_chunk(shard->codec, chunk_bytes);
    const uint64_t gradient = (shard->gradient_bytes + coded - 1) / coded;
    const uint64_t first = (shard->body_bytes + chunk_bytes - 1) / chunk_bytes;
    return (uint32_t)(gradient > first ? gradient : first);
}

/* Of the smaller elements. */
uint32_t arena_chunk_blocks(const struct shard *shard)
{
    const uint64_t bytes = codec_chunk(shard->codec, shard->options.chunk_bytes);
    return (uint32_t)arithmetic_blocks(codec_elements(shard->codec, bytes));
}

uint64_t shard_tile(uint32_t threads)
{
    return threads > 1 ? (uint64_t)threads * TILE_BLOCKS_EACH * ARITHMETIC_BLOCK : 0;
}

/* Large tiles, made for several threads, are at most a quarter of the range: there is room for one
 * beside it. */
static uint64_t tile_of(const struct shard_options *options, uint64_t elements)
{
    const uint64_t quarter = elements / 4 / TILE_ELEMENTS * TILE_ELEMENTS;
    uint64_t tile = options->tile_elements ? options->tile_elements : TILE_ELEMENTS;
    if (tile > TILE_ELEMENTS && tile > quarter)
        tile = quarter > TILE_ELEMENTS ? quarter : TILE_ELEMENTS;
    return tile < elements ? tile : elements;
}

/* The sizes that follow from model, law and options, before offsets. */
static void measure(struct shard *shard, const struct model *model, const struct law_settings *law,
                    const struct shard_options *options)
{
    const struct model_range range =
        model_shard(model, options->member.members, options->member.shard);
    shard->options = *options;
    shard->elements = range.elements;
    shard->block = model->block;
    shard->blocks = range.blocks;
    shard->moments_count = range.moments;
    shard->body_bytes = range.elements * sizeof(float) + range.moments * sizeof(struct moments);
    shard->codec = (enum arithmetic_codec)options->member.gradient_dtype;
    shard->gradient_bytes =
        codec_bytes(shard->codec, range.elements) + range.moments * sizeof(struct moments);
    shard->slot_stride = stride_of(shard->gradient_bytes, APART_SLOTS);
    shard->parameter_stride = stride_of(shard->body_bytes, APART_PARAMETERS);
    shard->state_stride = stride_of(range.elements * sizeof(float), APART_STATES);
    shard->body_room = least(least(options->chunk_bytes, BODY_BYTES_MAX), shard->body_bytes);
    shard->states_count = (uint32_t)arithmetic_states_n(law->algorithm, options->optimizer.centered,
                                                        options->optimizer.momentum);
    shard->chunks = chunks_of(shard, options->chunk_bytes);
    shard->bit_words = (shard->chunks + 63) / 64;
    shard->chunk_blocks = (uint32_t)arena_chunk_blocks(shard);
    shard->tile = tile_of(options, range.elements);
    shard->tile_stride = round_up(shard->tile * sizeof(float));
    shard->tiles = shard->tile ? (range.elements - 1) / shard->tile + 1 : 0;
    shard->places = shard->tiles + (options->warm && shard->tiles > 0);
    shard->state_ring = shard->places * shard->tile_stride;
    shard->journal.bytes = options->warm ? journal_bytes(options) : 0;
    shard->records_max = 2 * options->member.slots + WINDOW_MAX + 2;
    shard->layout_hash = model->hash;
    shard->layout_bytes = model_encoded_bytes(model);
    shard->pieces_count = count_pieces(model, options);
    shard->average = law->clip_average > 0;
    shard->sum_pieces = law->algorithm == ARITHMETIC_LAMB ? sums_pieces(model, &range) : 0;
    shard->ratios_count = law->algorithm == ARITHMETIC_LAMB ? model->parameter_tensors : 0;
    stacks_measure(shard, model, law);
    shard->groups_count = model->groups_count;
    memcpy(shard->groups, model->groups, sizeof shard->groups);
}

static uint64_t take(uint64_t *end, uint64_t bytes)
{
    const uint64_t offset = *end;
    *end = round_up(*end + bytes);
    return offset;
}

void arena_offsets(const struct shard *shard, struct offsets *at, uint64_t *bytes)
{
    const struct shard_options *options = &shard->options;
    const uint64_t redo = options->warm && shard->stacks > 0 ? shard->tile * sizeof(float) : 0;
    uint64_t end = round_up(sizeof *shard);
    at->sessions = take(&end, options->sessions_max * sizeof(struct session));
    at->pulls = take(&end, options->pulls_max * sizeof(struct pull));
    at->records = take(&end, shard->records_max * sizeof(struct record));
    at->bits = take(&end, (uint64_t)options->member.slots * shard->bit_words * sizeof(uint64_t));
    at->shares = take(&end, (uint64_t)options->member.slots * RANKS_MAX * sizeof(struct share));
    at->ahead = take(&end, shard->bit_words * sizeof(uint64_t));
    at->journal = take(&end, shard->journal.bytes);
    at->pieces = take(&end, shard->pieces_count * sizeof(struct arithmetic_range));
    at->sums =
        take(&end, (shard->sum_pieces ? 2 * shard->sum_pieces : shard->blocks) * sizeof(double));
    at->chunk_sums = take(&end, (uint64_t)options->member.slots * shard->chunks *
                                    shard->chunk_blocks * sizeof(double));
    at->ratios = take(&end, shard->ratios_count * sizeof(float));
    at->moments = take(&end, 2 * shard->moments_count * sizeof(struct moments));
    at->kept = take(&end, (uint64_t)kept_places(shard) * sizeof(struct record));
    at->layout = take(&end, shard->layout_bytes);
    at->digests = take(&end, digests_bytes(shard));
    at->lists = take(&end, (uint64_t)options->pulls_max * PIECES_MAX * sizeof(struct piece));
    at->bodies = take(&end, BODIES * round_up(shard->body_room));
    at->redo = take(&end, redo);
    at->slots = take(&end, options->member.slots * shard->slot_stride);
    at->parameters = take(&end, options->member.parameter_slots * shard->parameter_stride);
    at->states = take(&end, shard->states_count * shard->state_ring);
    at->average = take(&end, shard->average ? shard->state_stride : 0);
    at->back = take(&end, shard->stacks ? shard->state_stride : 0);
    at->fronts = take(&end, (uint64_t)law_stacks_fronts(shard->stacks) * shard->state_stride);
    *bytes = end;
}

static gradweir_status check(const struct model *model, const struct shard_options *options)
{
    const struct message_member *member = &options->member;
    const struct model_range range = model_shard(model, member->members, member->shard);
    if (member->layout_hash != model->hash || member->first != range.first ||
        member->count != range.elements)
        return fail(GRADWEIR_ERR_MISMATCH,
                    "the coordinator's layout and range do not fit together");
    if (member->slots == 0 || member->slots > SLOTS_MAX ||
        member->parameter_slots < PARAMETER_SLOTS_MIN ||
        member->parameter_slots > PARAMETER_SLOTS_MAX)
        return fail(GRADWEIR_ERR_INVALID,
                    "%u slots and %u parameter slots: 1..%d and %d..%d are allowed", member->slots,
                    member->parameter_slots, SLOTS_MAX, PARAMETER_SLOTS_MIN, PARAMETER_SLOTS_MAX);
    if (codec_name(member->gradient_dtype) == NULL)
        return fail(GRADWEIR_ERR_INVALID, "gradient dtype %u is none", member->gradient_dtype);
    if (member->ring > RING_MAX)
        return fail(GRADWEIR_ERR_INVALID, "a ring of %u records: at most %d", member->ring,
                    RING_MAX);
    if (options->chunk_bytes == 0 || options->chunk_bytes % sizeof(float))
        return fail(GRADWEIR_ERR_INVALID, "chunk_bytes is %llu: a multiple of 4 is wanted",
                    (unsigned long long)options->chunk_bytes);
    const uint64_t body = range.elements * sizeof(float) + range.moments * sizeof(struct moments);
    if (options->chunk_bytes > UINT32_MAX || body / options->chunk_bytes >= CHUNKS_MAX)
        return fail(
            GRADWEIR_ERR_INVALID,
            "%llu bytes in chunks of %llu: less than 4 GiB and at most %d of them are wanted",
            (unsigned long long)body, (unsigned long long)options->chunk_bytes, CHUNKS_MAX);
    /* 2^40 elements in 512 + 64 + 4 arrays of 4 bytes stay far below 2^64. */
    return GRADWEIR_OK;
}

static void explain(const struct shard *shard, uint64_t bytes, char *text, size_t size)
{
    const double mib = 1024.0 * 1024.0;
    const struct message_member *member = &shard->options.member;
    const uint64_t floats =
        member->slots * shard->slot_stride + member->parameter_slots * shard->parameter_stride +
        shard->states_count * shard->state_ring + stacks_arrays(shard) * shard->state_stride;
    snprintf(text, size,
             "%.2f MiB = %u slots of %s x %.3f + %u parameter slots x %.3f + %u optimizer states x "
             "%.3f + %llu partial sums of the window x %.3f + %.2f for tables, sums and slices",
             (double)bytes / mib, member->slots, codec_name(shard->codec),
             (double)shard->slot_stride / mib, member->parameter_slots,
             (double)shard->parameter_stride / mib, shard->states_count,
             (double)shard->state_ring / mib, (unsigned long long)stacks_arrays(shard),
             (double)shard->state_stride / mib, (double)(bytes - floats) / mib);
}

gradweir_status shard_arena_bytes(const struct model *model, const struct law_settings *law,
                                  const struct shard_options *options, uint64_t *bytes, char *text,
                                  size_t size)
{
    static _Thread_local struct shard sizes;
    TRY(check(model, options));
    measure(&sizes, model, law, options);
    arena_offsets(&sizes, &sizes.at, bytes);
    explain(&sizes, *bytes, text, size);
    return GRADWEIR_OK;
}

static void cut_pieces(struct shard *shard, const struct model *model)
{
    const struct model_range range =
        model_shard(model, shard->options.member.members, shard->options.member.shard);
    struct arithmetic_range *pieces = at_offset(shard, shard->at.pieces);
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->parameter_tensors; i++) {
        const struct model_tensor *tensor = model->by_offset[i];
        if (!in_range(tensor, &range))
            continue;
        const uint64_t begin = tensor->offset > range.first ? tensor->offset - range.first : 0;
        const uint64_t end = tensor->offset + tensor->elements - range.first;
        pieces[count++] =
            (struct arithmetic_range){.begin = begin,
                                      .end = end < range.elements ? end : range.elements,
                                      .group = tensor->group,
                                      .tensor = i};
    }
}

gradweir_status shard_init(void *arena, uint64_t bytes, const struct model *model,
                           const struct law_settings *law, const struct shard_options *options)
{
    struct shard *shard = arena;
    TRY(check(model, options));
    measure(shard, model, law, options);
    uint64_t need;
    arena_offsets(shard, &shard->at, &need);
    if (need > bytes)
        return fail(GRADWEIR_ERR_NO_MEMORY, "the arena has %llu bytes, %llu are needed",
                    (unsigned long long)bytes, (unsigned long long)need);
    shard->bytes = need;
    shard->figures.arena_bytes = need;
    cut_pieces(shard, model);
    ledger_init(&shard->ledger);
    epoch_init(shard, options, model);
    digests_init(shard);
    shard->head.format = SHARD_FORMAT;
    shard->head.build = arena_build();
    shard->head.shape = arena_shape(law, options);
    atomic_signal_fence(memory_order_seq_cst);
    shard->head.magic = ARENA_MAGIC;
    return GRADWEIR_OK;
}

/* A program that lays its structs out otherwise cannot read this arena. */
uint64_t arena_build(void)
{
    const uint64_t sizes[] = {
        sizeof(struct shard),          sizeof(struct ledger),        sizeof(struct law),
        sizeof(struct record),         sizeof(struct slot),          sizeof(struct session),
        sizeof(struct pull),           sizeof(struct moments),       sizeof(struct stepping),
        offsetof(struct shard, slots), offsetof(struct shard, step), sizeof(struct share)};
    return checksum_hash64(SHARD_FORMAT, sizes, sizeof sizes);
}

uint64_t arena_shape(const struct law_settings *law, const struct shard_options *options)
{
    const struct optimizer_options *optimizer = &options->optimizer;
    const double numbers[] = {optimizer->epsilon, optimizer->dampening, optimizer->weight_decay};
    const uint64_t shape[] = {law->algorithm,      law->clip_average > 0,   optimizer->centered,
                              optimizer->momentum, optimizer->always_adapt, options->sessions_max,
                              options->pulls_max,  options->chunk_bytes,    options->keep,
                              options->warm,       law_stacks_room(law)};
    return checksum_hash64(checksum_hash64(0, numbers, sizeof numbers), shape, sizeof shape);
}

void *at_offset(struct shard *shard, uint64_t offset)
{
    return (char *)shard + offset;
}

void *shard_address(struct shard *shard, uint64_t offset)
{
    ASSERT(offset <= shard->bytes);
    return at_offset(shard, offset);
}

struct session *sessions_of(struct shard *shard)
{
    return at_offset(shard, shard->at.sessions);
}

struct pull *pulls_of(struct shard *shard)
{
    return at_offset(shard, shard->at.pulls);
}

struct record *records_of(struct shard *shard)
{
    return at_offset(shard, shard->at.records);
}

struct moments *moments_of(struct shard *shard, uint32_t which)
{
    return (struct moments *)at_offset(shard, shard->at.moments) + which * shard->moments_count;
}

uint64_t slot_offset(const struct shard *shard, uint32_t slot)
{
    return shard->at.slots + slot * shard->slot_stride;
}

/* First parameters are float32. Where slots are too small for that, they land in the last of the
 * parameter slots, one after the other: the coordinator gives one place at a time until it has
 * them. */
uint64_t first_offset(const struct shard *shard, uint32_t slot)
{
    return shard->codec == ARITHMETIC_F32
               ? slot_offset(shard, slot)
               : parameter_offset(shard, shard->options.member.parameter_slots - 1);
}

uint64_t parameter_offset(const struct shard *shard, uint32_t i)
{
    return shard->at.parameters + i * shard->parameter_stride;
}
