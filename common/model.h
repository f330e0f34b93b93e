/* The flat model: which tensors it has, where each lies, how it is cut into blocks and shards.
 *
 * Two sections, each numbered from 0 in the order in which tensors were added:
 *
 *   parameters  one float32 per element, `elements` of them            offset = first element in
 * this section moments     one struct of three float64 per element, `moments`     offset = first
 * element in this section of them: count, mean, M2, little-endian, 24 bytes
 *
 * The moments section is the tail of a body: it follows the parameters of the last shard, outside
 * norm, clip, weight and codec. A tensor's element type follows from its kind; in which type a
 * worker's memory or the wire holds it is not the model's business.
 *
 * Blocks cut the parameters into equal pieces (the last may be short). Whole-model sums follow a
 * tree over blocks, so the block size depends on the layout alone and never on the number of
 * shards: 64 Ki elements, halved while the model has fewer than 128 blocks, down to 256. Shards are
 * runs of whole blocks; two shards differ by at most one block.
 *
 * Build: model_new, model_group_add, model_add ..., model_seal. A sealed model does not change and
 * may be shared. */
#ifndef GRADWEIR_COMMON_MODEL_H
#define GRADWEIR_COMMON_MODEL_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_NAME_MAX       63
#define MODEL_DIMENSIONS_MAX 8
#define MODEL_TENSORS_MAX    65536u
#define MODEL_GROUPS_MAX     16u
#define MODEL_ELEMENTS_MAX   (UINT64_C(1) << 40)
#define MODEL_MOMENTS_MAX    65536u /* all of them live on the last shard: 1.5 MiB at most */
#define MODEL_BLOCK          65536u
#define MODEL_BLOCK_MIN      256u
#define MODEL_SHARDS_MAX     64u

enum model_kind { MODEL_PARAMETER, MODEL_MOMENTS };

/* Running statistics of one observed number (Chan et al. 1979): M2 is the sum of squared distances
 * from the mean. */
struct moments {
    double count;
    double mean;
    double m2;
};

/* a becomes what both have seen. An empty b changes nothing. IEEE operations in a written order:
 * the same bits everywhere. */
void moments_merge(struct moments *a, const struct moments *b);

#define MODEL_AS_SET (-1.0) /* for weight_decay, beta1, beta2: as the run's settings say */

/* How the optimizer treats the tensors of a group. */
struct model_group {
    double learning_rate_scale; /* >= 0 */
    double weight_decay;        /* >= 0, or MODEL_AS_SET */
    double beta1;               /* in [0, 1), or MODEL_AS_SET */
    double beta2;               /* in [0, 1), or MODEL_AS_SET */
    bool frozen;                /* never stepped; gradients for it are ignored */
};

struct model_tensor {
    char name[MODEL_NAME_MAX + 1];
    enum model_kind kind;
    uint32_t group;
    uint32_t dimensions; /* 0 is a scalar: one element */
    uint64_t shape[MODEL_DIMENSIONS_MAX];
    uint64_t elements;
    uint64_t offset; /* in elements of its section */
};

struct model {
    struct model_tensor *tensors; /* in the order of adding */
    const struct model_tensor **by_name;
    const struct model_tensor **by_offset; /* the parameters only, parameter_tensors of them */
    uint32_t tensors_count;
    uint32_t tensors_max;
    uint32_t parameter_tensors;
    uint32_t
        groups_count; /* at least 1: group 0 is {1, AS_SET, AS_SET, AS_SET, false} unless changed */
    struct model_group groups[MODEL_GROUPS_MAX];
    uint64_t elements; /* of the parameters */
    uint64_t moments;  /* elements of the moments section */
    uint64_t block;    /* elements of a block; 0 until sealed */
    uint64_t blocks;
    uint64_t hash; /* of the canonical bytes: equal layouts, equal hashes on every machine */
};

/* One shard's share. A shard of a model with fewer blocks than shards may be empty (elements 0). */
struct model_range {
    uint64_t first;    /* element */
    uint64_t elements; /* parameters of this shard */
    uint64_t first_block;
    uint64_t blocks;
    uint64_t moments; /* all of the model's for the last shard, else 0 */
};

/* An empty model with room for tensors_max tensors and one default group, in one allocation. */
gradweir_status model_new(uint32_t tensors_max, struct model **model);
void model_free(struct model *model);

/* Whether a group's numbers are numbers that may be; ERR_INVALID names the one that is not. */
gradweir_status model_group_check(const struct model_group *group);

/* Appends a group and tells its number; ERR_FULL after MODEL_GROUPS_MAX, ERR_INVALID for numbers
 * out of range. */
gradweir_status model_group_add(struct model *model, const struct model_group *group,
                                uint32_t *number);

/* Changes group 0, which every model has from the start. */
gradweir_status model_group_default(struct model *model, const struct model_group *group);

/* Appends a tensor; reads name, kind, group, dimensions, shape and fills in elements and offset of
 * its copy. A name has 1 to 63 bytes, none of them a control character; dimensions are at least 1.
 */
gradweir_status model_add(struct model *model, const struct model_tensor *tensor);

/* Ends building: names must differ and there must be a parameter. Sets block, blocks, hash. */
gradweir_status model_seal(struct model *model);

/* The tensor of that name or NULL; the parameter tensor that holds an element of the parameters
 * section. */
const struct model_tensor *model_find(const struct model *model, const char *name);
const struct model_tensor *model_tensor_at(const struct model *model, uint64_t element);

/* The share of shard `index` of `shards`. Shares tile the parameters exactly, in order. */
struct model_range model_shard(const struct model *model, uint32_t shards, uint32_t index);

/* Canonical bytes, all little-endian, no padding:
 *   u32 magic 0x4c4d5747 ("GWML"), u16 version 1, u16 groups, u32 tensors
 *   per group:  f64 learning_rate_scale, weight_decay, beta1, beta2; u8 frozen
 *   per tensor: u8 length of name, name, u8 kind, u8 group, u8 dimensions, u64 per dimension */
size_t model_encoded_bytes(const struct model *model);

/* Writes exactly model_encoded_bytes; ERR_FULL when size is less. */
gradweir_status model_encode(const struct model *model, void *bytes, size_t size);

/* A sealed model from bytes that anybody may have sent: ERR_PROTOCOL for whatever model_encode
 * cannot have written. It allocates no more than in proportion to size. The caller frees it. */
gradweir_status model_decode(const void *bytes, size_t size, struct model **model);

/* False and no text when the layouts are the same; else true and one sentence that names the first
 * tensor (or group) in which they differ, as `ours` and `theirs` have it. */
bool model_difference(const struct model *ours, const struct model *theirs, char *text,
                      size_t size);

#endif
