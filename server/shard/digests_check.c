/* Whether the memory of a killed process is what it left: every digest that counts, after half an
 * event was undone and the tile under way has its old state back. The first that disagrees is named
 * as people know it: tensor, array, block. */
#include "server/shard/digests.h"

#include "common/checksum.h"

#include <stdio.h>
#include <string.h>

/* What a block is about, in words: the tensors that lie in it. */
static void name_tensors(struct shard *shard, uint64_t begin, uint64_t end, char *text, size_t size)
{
    struct model *model;
    const uint64_t first = shard->options.member.first;
    snprintf(text, size, "tensors unknown");
    if (model_decode(at_offset(shard, shard->at.layout), shard->layout_bytes, &model) !=
        GRADWEIR_OK)
        return;
    const struct model_tensor *from = model_tensor_at(model, first + begin);
    const struct model_tensor *to = model_tensor_at(model, first + end - 1);
    if (from && to)
        snprintf(text, size, from == to ? "tensor %s" : "tensors %s to %s", from->name, to->name);
    model_free(model);
}

static gradweir_status changed(const char *what)
{
    return fail(GRADWEIR_ERR_CORRUPT,
                "%s is not what the killed process left there: a bit flipped, or somebody else "
                "wrote into the arena. It is not trained on",
                what);
}

static gradweir_status changed_block(struct shard *shard, const char *array, uint64_t block)
{
    char names[2 * MODEL_NAME_MAX + 32], what[2 * MODEL_NAME_MAX + 200];
    const uint64_t begin = block * shard->block, end = begin + shard->block;
    name_tensors(shard, begin, end < shard->elements ? end : shard->elements, names, sizeof names);
    snprintf(what, sizeof what, "block %llu of %s (%s)",
             (unsigned long long)(shard->options.member.first / shard->block + block), array,
             names);
    return changed(what);
}

/* Blocks [0, done) of an array of floats. */
static gradweir_status check_blocks(struct shard *shard, const char *array, uint64_t floats,
                                    const uint64_t *digests, uint64_t done)
{
    for (uint64_t block = 0; block < done; block++)
        if (digests_of_block(shard, floats, block) != digests[block])
            return changed_block(shard, array, block);
    return GRADWEIR_OK;
}

static uint64_t blocks_done(const struct shard *shard)
{
    return (tile_next(shard) + shard->block - 1) / shard->block;
}

/* Each block where it lies now: a step that is half done has moved some tiles. */
static gradweir_status check_state(struct shard *shard, uint32_t state)
{
    char array[40];
    const uint64_t *digests = digests_of_state(shard, state);
    snprintf(array, sizeof array, "optimizer state %u", state + 1);
    for (uint64_t block = 0; block < shard->blocks; block++) {
        const uint64_t begin = block * shard->block;
        const uint64_t floats = tile_state(shard, state, begin, tile_stepped(shard, begin));
        if (digests_of_block(shard, floats, block) != digests[block])
            return changed_block(shard, array, block);
    }
    return GRADWEIR_OK;
}

static gradweir_status check_parameters(struct shard *shard)
{
    char array[60];
    for (uint32_t i = 0; i < shard->options.member.parameter_slots; i++) {
        const struct parameter_slot *slot = &shard->parameters[i];
        const bool made = shard->step.phase == STEP_APPLYING && i == shard->step.to;
        const uint64_t *digests = digests_of_parameters(shard, i);
        if (!slot->used || (slot->writing && !made) || !shard->has_first)
            continue;
        snprintf(array, sizeof array, "the parameters of version %llu",
                 (unsigned long long)(made ? shard->step.record.version : slot->version));
        TRY(check_blocks(shard, array, parameter_offset(shard, i), digests,
                         made ? blocks_done(shard) : shard->blocks));
        if (!made && digests_of_tail(shard, i) != digests[shard->blocks])
            return changed("the MOMENTS behind the parameters");
    }
    return GRADWEIR_OK;
}

static gradweir_status check_average(struct shard *shard)
{
    const struct stepping *step = &shard->step;
    const bool whole = step->phase == STEP_WAIT_SUMMED || step->phase == STEP_APPLYING;
    if (!shard->average || !step->record.rounds || (!whole && step->phase != STEP_AVERAGING))
        return GRADWEIR_OK;
    return check_blocks(shard, "the window's average", shard->at.average, digests_of_average(shard),
                        whole ? shard->blocks : blocks_done(shard));
}

static gradweir_status check_records(struct shard *shard)
{
    const struct record *kept = at_offset(shard, shard->at.kept);
    const uint64_t places = kept_places(shard), last = shard->ledger.index;
    for (uint64_t i = last; places && i > 0 && i + shard->options.member.ring > last; i--)
        if (kept[i % places].index != i || !digests_record_same(shard, &kept[i % places]))
            return changed("a record of the log");
    for (uint32_t i = 0; i < shard->records_count; i++) {
        const struct record *waits =
            &records_of(shard)[(shard->records_first + i) % shard->records_max];
        const struct record *same = shard_record(shard, waits->index);
        if (same && record_hash(same) != record_hash(waits))
            return changed("a record that waits to be applied");
    }
    return GRADWEIR_OK;
}

/* Bodies that were under way come anew, and what came in shares has no sums of its own. */
static gradweir_status check_gradient(struct shard *shard, uint32_t index)
{
    const struct slot *slot = &shard->slots[index];
    const uint64_t chunk = slot_chunk_bytes(shard, index), all = slot_bytes(shard, index);
    char what[100];
    const bool over = slot->first && shard->has_first; /* its place is a parameter slot again */
    if (slot->generation == 0 || slot->bad || slot->ranks > 0 || slot->in_flight > 0 || over)
        return GRADWEIR_OK;
    for (uint32_t i = 0; i * chunk < all; i++) {
        const uint64_t begin = i * chunk, rest = all - begin;
        const void *bytes = at_offset(shard, slot_place(shard, index) + begin);
        if (!slot_has_chunk(shard, index, i) ||
            checksum_crc32c(0, bytes, rest < chunk ? rest : chunk) ==
                digests_chunks(shard, index)[i])
            continue;
        snprintf(what, sizeof what, "chunk %u of gradient %llu of worker %u, in slot %u,", i,
                 (unsigned long long)slot->name.sequence, slot->name.worker, index);
        return changed(what);
    }
    return GRADWEIR_OK;
}

gradweir_status digests_check(struct shard *shard)
{
    if (!digests_kept_up(shard))
        return GRADWEIR_OK;
    if (!digests_fixed_same(shard))
        return changed("the model's layout");
    TRY(check_parameters(shard));
    for (uint32_t i = 0; i < shard->states_count; i++)
        TRY(check_state(shard, i));
    TRY(check_average(shard));
    if (!digests_moments_same(shard))
        return changed("the array of MOMENTS");
    TRY(check_records(shard));
    for (uint32_t i = 0; i < shard->options.member.slots; i++)
        TRY(check_gradient(shard, i));
    return GRADWEIR_OK;
}
