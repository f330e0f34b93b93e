/* The caller's arrays that lie in a GPU's memory ("far"): asked where they lie, read and written by
 * way of a staging ring (client_staging.h), or not at all (client_direct.h). Nothing else in the
 * client touches what is far.
 *
 *   client_memory.c        the device, and the path of floats
 *   client_memory_check.c  where arrays lie
 *   client_memory_move.c   out of them and into them
 *   client_direct.c        pushes that never leave the device's memory (client_direct.h) */
#ifndef GRADWEIR_CLIENT_CLIENT_MEMORY_H
#define GRADWEIR_CLIENT_CLIENT_MEMORY_H

#include "client/client_encode.h"
#include "client/client_staging.h"

enum { MEMORY_TEXT = 360 }; /* room for what client_memory_text says */

/* Of a client whose options.memory is not host, and whose machine has the device. */
struct client_memory {
    const struct device *device;
    struct device_state *state;
    char name[96];  /* of the device, for people */
    char path[240]; /* how floats travel, for people */
    struct staging staging;
    struct client_direct *direct;    /* pushes are made in its memory; NULL: they are staged */
    uint8_t *far;                    /* per bound tensor: which of its arrays are */
    enum client_source source;       /* of the stream that is read */
    uint32_t reading;                /* where it is: of model->by_offset */
    bool pinned[OUTSTANDING_MAX];    /* send buffers, and */
    size_t pinned_bytes;             /* their size */
    uint8_t *landing;                /* where pulls with options into far memory land first */
    uint32_t landing_memory;         /* the transport's number of it */
    uint32_t boxes;                  /* of such a pull, until they are where they belong; else 0 */
    bool landed;                     /* and it has ended */
    uint8_t *to[GRADWEIR_BOXES_MAX]; /* where box i goes from there; NULL: it lands where it belongs
                                      */
};

/* Opens the device when the options want one. ERR_UNSUPPORTED says why there is none; with auto the
 * client then has no memory but the host's. open_with: `device` is what cuda means, NULL when this
 * build has none of that name. */
gradweir_status client_memory_open(struct gradweir_client *client);
gradweir_status client_memory_open_with(struct gradweir_client *client,
                                        const struct device *device);
void client_memory_close(struct gradweir_client *client);

/* Once the tensors are known: ERR_INVALID names the first whose array is not where the options have
 * it, or cannot be read. Takes the ring. */
gradweir_status client_memory_bind(struct gradweir_client *client);
void client_memory_unbind(struct gradweir_client *client); /* before the send buffers go */

/* Once transport, send buffers and codec are there: which path it is. ERR_UNSUPPORTED says what is
 * missing when it cannot be the one that is asked for. */
gradweir_status client_memory_path(struct gradweir_client *client);

/* Puts the path on the operator's page, as a number: memory_direct or memory_staging 1. Nothing
 * where it is host. */
void client_memory_report(struct gradweir_client *client);

/* ERR_LOST and the like when the device has failed: nothing that needs it works any more. */
gradweir_status client_memory_whole(const struct gradweir_client *client);

/* For people: "host", or device, path, and why. The path's name alone: "host", "staging", "direct".
 */
void client_memory_text(const struct gradweir_client *client, char *text, size_t size);
const char *client_memory_path_name(const struct gradweir_client *client);

/* Whether this array of a bound tensor is far. ACCUMULATED never is. */
bool client_memory_far(const struct gradweir_client *client, size_t tensor,
                       enum client_source source);

/* The array that is a tensor's gradient; of a rank, its part's. */
uint64_t client_memory_gradient_bytes(const struct gradweir_client *client, size_t tensor);

/* A push's floats: begins their stream, or begins it again. *streams: some of them are far, and all
 * come by the stream, in order; else nothing has begun. Where the send buffer is pinned and takes
 * float32 they are there already. */
gradweir_status client_memory_stream(struct client_encoding *encoding, bool *streams);
gradweir_status client_memory_floats(struct client_encoding *encoding, uint64_t n,
                                     const float **floats);

/* What is done with elements [first, first + count) of an array: floats, or struct moments. */
typedef void (*client_memory_use)(void *context, const void *data, uint64_t first, uint64_t count);

/* One array: in pieces, in order, when it is far; else all of it; nothing when it is NULL. */
gradweir_status client_memory_read(struct gradweir_client *client, size_t tensor,
                                   enum client_source source, client_memory_use use, void *context);

/* Into bound parameters, nothing when they are NULL; whole once flush says OK. */
gradweir_status client_memory_load(struct gradweir_client *client, size_t tensor, const void *from,
                                   uint64_t bytes);
gradweir_status client_memory_flush(struct gradweir_client *client);

/* Into any array of the caller's; whole when it returns. */
gradweir_status client_memory_give(struct gradweir_client *client, void *to, const void *from,
                                   uint64_t bytes);

/* Pulls with options. boxes: looks at those of the one that begins (ERR_INVALID as bind), and lets
 * the far ones land elsewhere; landing: the transport's number of where box, counted from 1, lands,
 * or 0; landed: that pull has ended, and whether anything came; unload: what has landed, and is not
 * there yet, goes where it belongs. */
gradweir_status client_memory_boxes(struct gradweir_client *client);
uint32_t client_memory_landing(const struct gradweir_client *client, uint32_t box);
void client_memory_landed(struct gradweir_client *client, bool moved);
gradweir_status client_memory_unload(struct gradweir_client *client);

/* Between the files above. */
gradweir_status client_memory_place(struct gradweir_client *client, const void *to, uint64_t bytes,
                                    bool *far);
gradweir_status client_memory_land(struct gradweir_client *client);
void client_memory_look_no_more(struct gradweir_client *client);

#endif
