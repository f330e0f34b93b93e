/* Pulls of something else than all parameters as float32: slices, bfloat16, only what is newer. A
 * part of gradweir/gradweir.h, which includes it. */
#ifndef GRADWEIR_PULL_H
#define GRADWEIR_PULL_H

#ifndef GRADWEIR_H
#error "include gradweir/gradweir.h"
#endif

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As what elements arrive. */
enum gradweir_dtype {
    GRADWEIR_FLOAT32 = 0,
    GRADWEIR_BFLOAT16 = 1 /* rounded to nearest even by the servers; half the bytes travel */
};

enum { GRADWEIR_BOXES_MAX = 1024 };

/* A box of one tensor: `count` indexes of `axis` from `first` on, everything of the other axes. It
 * arrives dense and row-major, in the order of the tensor's own axes: of a [6, 4] tensor, axis 1,
 * first 1, count 2 is a [6, 2] array. Of a scalar: axis 0, first 0, count 1. */
typedef struct gradweir_box {
    const char *tensor; /* its name */
    uint32_t axis;
    uint64_t first, count;
    void *to;          /* PARAMETER: float32 or bfloat16[elements of the box];
                          MOMENTS: struct { double count, mean, m2; }[elements of the box] */
    uint64_t to_bytes; /* room there: exactly what the box has */
} gradweir_box;

typedef struct gradweir_pull_options {
    size_t size;          /* sizeof this struct: set by gradweir_pull_options_default */
    uint32_t dtype;       /* enum gradweir_dtype, of parameters; MOMENTS stay doubles */
    uint32_t conditional; /* 1: only if the job has a newer version than `newer_than`. If not, the
                             receipt says moved = 0 and no parameters travel */
    uint64_t newer_than;
    uint32_t exact; /* 1: version `version` and no other, which must be one that the servers still
                       hold (they keep a few): else wait fails with ERR_REFUSED. One that is not
                       there yet is waited for: wait may be ERR_TIMEOUT, and is called again. When
                       it has not come within the servers' pull_patience (10 s) it is refused, too;
                       until then no other pull may begin */
    uint64_t version;
    const gradweir_box *boxes; /* what is wanted; copied. NULL: all parameters, see `to` */
    size_t boxes_count;        /* at most GRADWEIR_BOXES_MAX */
    void *to;          /* without boxes: all parameters in order, float32 or bfloat16[elements];
                          NULL: into bound memory as gradweir_pull does, float32 only */
    uint64_t to_bytes; /* room there: exactly that */
} gradweir_pull_options;

/* Newest version, float32, all of it, into bound memory. */
GRADWEIR_API void gradweir_pull_options_default_sized(gradweir_pull_options *options, size_t size);
#define gradweir_pull_options_default(options)                                                     \
    gradweir_pull_options_default_sized((options), sizeof(gradweir_pull_options))

/* A pull of what the options say: some boxes only (each in its own memory, in the caller's own
 * layout: no more than their bytes travel), as bfloat16, only if newer, or one version exactly. It
 * is one version of the whole model like every pull, on all servers, over any reconnect.
 *
 *     float rows[128 * 512];
 *     gradweir_box box = {.tensor = "embed", .axis = 0, .first = 256, .count = 128,
 *                         .to = rows, .to_bytes = sizeof rows};
 *     gradweir_pull_options_default(&options);
 *     options.boxes = &box;
 *     options.boxes_count = 1;
 *     gradweir_pull_with(client, &options, &ticket);
 *     gradweir_wait(client, ticket, 10000, &receipt); // receipt.version, receipt.moved
 *
 * Memory that is named (`to`) is the library's from this call on until wait has given the receipt,
 * and undefined meanwhile; wait that fails other than by ERR_TIMEOUT, or close, gives it back too.
 * Bound memory and gradweir_version are as they were, unless the pull is into bound memory. A
 * worker that has pulled so and nothing else names the version as the basis of its gradient:
 * gradweir_push_from.
 *
 * One pull at a time: ERR_STATE, naming the ticket, while another kind of pull, or another one with
 * options, is under way. ERR_INVALID, saying what is allowed: no such tensor, axis or range; two
 * boxes that share an element; room of another size; a dtype that is none. Readers may pull so, and
 * need not bind anything. */
GRADWEIR_API gradweir_status gradweir_pull_with(gradweir_client *client,
                                                const gradweir_pull_options *options,
                                                gradweir_ticket *ticket);

#ifdef __cplusplus
}
#endif

#endif
