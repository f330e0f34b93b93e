/* Pushes that are made in a GPU's memory: encoded, measured and summed there, and sent from there.
 * The processor sees norm and checksums, and none of the floats.
 *
 *     arrays --copies of small ones--> window --encode--> send buffer --network--> servers
 *        \______________large ones_______________/
 *
 * A push is made in pieces of whole blocks; while one is sent the next are made. What is not made
 * here goes by staging as ever: first parameters, what was accumulated, pulls, and MOMENTS, which
 * pass by the host on their way into the send buffer. */
#ifndef GRADWEIR_CLIENT_CLIENT_DIRECT_H
#define GRADWEIR_CLIENT_CLIENT_DIRECT_H

#include "client/client_encode.h"
#include "common/device.h"

/* A push is made in so many pieces at least, that the first leaves soon; of so many elements at
 * most (4 MiB of float32). */
enum { DIRECT_PIECES = 8 };
#define DIRECT_PIECE_MAX ((uint64_t)16 * ARITHMETIC_BLOCK)

struct client_direct {
    const struct device *device; /* borrowed, and its state */
    struct device_state *state;
    enum arithmetic_codec codec;
    uint8_t *bodies[OUTSTANDING_MAX]; /* send buffers in the GPU's memory; NULL: none */
    uint32_t memories[OUTSTANDING_MAX];
    uint32_t *crcs[OUTSTANDING_MAX];   /* of each grain of a body */
    bool holds[OUTSTANDING_MAX];       /* this buffer's push is there, and not in host memory */
    size_t bytes;                      /* of a body */
    uint64_t grain;                    /* elements of a checksum */
    uint64_t piece;                    /* elements of a piece: whole arithmetic blocks */
    float *window, *zeros;             /* room for a piece; NULL: not needed */
    float *rest;                       /* error feedback of these pushes; NULL: none */
    bool owes_there, owes_here;        /* it may be other than zeros; and so may the host's */
    double *sums;                      /* of the push that is made, for each arithmetic block */
    uint64_t placed, asked;            /* elements of it in the window; given to be encoded */
    bool undoing;                      /* it is taken back instead */
    uint32_t tensor;                   /* of model->by_offset, where `placed` is */
    uint64_t tickets[DEVICE_JOBS_MAX]; /* by a piece's number: of its encoding */
};

/* Once transport, send buffers, codec and feedback are there. Otherwise than OK it says why pushes
 * cannot be made so, and nothing is taken: ERR_UNSUPPORTED, ERR_NO_MEMORY. */
gradweir_status client_direct_open(struct gradweir_client *client);
void client_direct_close(struct gradweir_client *client); /* after the transport */

/* encoding->direct: this push is made there; then begins it. ERR_LOST and the like. */
gradweir_status client_direct_begin(struct client_encoding *encoding);

/* The next elements of it that are in the send buffer, checksums and sum of squares too: how many.
 * 0: encoding->status says why not. */
uint64_t client_direct_next(struct client_encoding *encoding);

/* All are. Checksums of the model's blocks; what lies behind the elements in the host's send buffer
 * goes behind them in the GPU's; whether it will be refused, where that matters to what is owed. */
gradweir_status client_direct_end(struct client_encoding *encoding);

/* Error feedback, client_direct_rest.c: what is owed comes to where the next push is made; a push
 * that will not be admitted leaves nothing owed behind; one that was refused is owed again. False:
 * that push was not made there. */
gradweir_status client_direct_owe(struct gradweir_client *client, bool there);
gradweir_status client_direct_undo(struct client_encoding *encoding);
bool client_direct_give_back(const struct gradweir_client *client, uint32_t buffer);

/* Where the body of this buffer's push lies, and the transport's number of that; NULL: in host
 * memory. */
const uint8_t *client_direct_body(const struct gradweir_client *client, uint32_t buffer,
                                  uint32_t *memory);

/* The checksum of bytes that are no whole grains: read back, for want of a better way. ERR_AGAIN
 * amid another stream of staging; ERR_LOST with the device. */
gradweir_status client_direct_crc(const struct gradweir_client *client, uint32_t buffer,
                                  uint64_t offset, uint64_t length, uint32_t *crc);

#endif
