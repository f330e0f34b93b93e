/* A client without servers: model, buffers and memory as bind makes them, with arrays in host
 * memory, in that of a device that nobody can touch, or some here and some there. Every rig of one
 * seed has the same floats. */
#ifndef GRADWEIR_UNIT_CLIENT_RIG_H
#define GRADWEIR_UNIT_CLIENT_RIG_H

#include "client/client_encode.h"
#include "client/client_memory.h"
#include "tests/unit/device_far.h"

enum { CLIENT_RIG_TENSORS = 8 };

enum client_rig_place { CLIENT_RIG_HOST, CLIENT_RIG_FAR, CLIENT_RIG_MIXED };

struct client_rig_wish {
    enum client_rig_place place;
    enum arithmetic_codec codec;
    uint32_t feedback; /* enum gradweir_feedback */
    uint32_t ranks;    /* this is rank 0; 0: no group */
    uint64_t seed;
    bool known;    /* the transport knows CUDA memory */
    uint32_t path; /* enum gradweir_memory_path */
};

struct client_rig {
    struct gradweir_client *client;
    struct transport_memory_hub *hub;
    gradweir_tensor tensors[CLIENT_RIG_TENSORS];
    uint64_t gradient_bytes[CLIENT_RIG_TENSORS], parameter_bytes[CLIENT_RIG_TENSORS];
    bool far[2 * CLIENT_RIG_TENSORS]; /* gradient, parameters of each */
};

/* Up to, and without, bind: tensors and their memory; then bind. */
void client_rig_new(struct client_rig *rig, const struct client_rig_wish *wish);
gradweir_status client_rig_bind(struct client_rig *rig, const struct client_rig_wish *wish);
void client_rig_free(struct client_rig *rig);

/* Both. */
void client_rig_make(struct client_rig *rig, const struct client_rig_wish *wish);

/* Array i's bytes (gradient 2 * tensor, parameters 2 * tensor + 1), wherever it lies. */
uint64_t client_rig_bytes(const struct client_rig *rig, size_t array);
void client_rig_put(struct client_rig *rig, size_t array, const void *from);
void client_rig_get(const struct client_rig *rig, size_t array, void *to);

/* New chance floats in all gradients; one of element `spoiled` of the first is an infinity, unless
 * it is UINT64_MAX. */
void client_rig_gradient(struct client_rig *rig, uint64_t seed, uint64_t spoiled);

/* A whole push into buffer 0, `piece` bytes of it at a time. */
void client_rig_encode(struct client_rig *rig, enum client_source source, uint64_t piece,
                       struct client_encoding *encoding);

/* A rig as wished, and its twin with the same floats in host memory. */
struct client_twins {
    struct client_rig far, host;
};

void client_twins_make(struct client_twins *twins, const struct client_rig_wish *wish);
void client_twins_free(struct client_twins *twins);

/* Both push: far in pieces of `piece`, its twin in others. */
void client_twins_encode(struct client_twins *twins, enum client_source source, uint64_t piece,
                         struct client_encoding *far, struct client_encoding *host);

#endif
