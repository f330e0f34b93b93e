/* A push's floats into its send buffer, a stretch at a time: client_encode.c. */
#ifndef GRADWEIR_CLIENT_CLIENT_ENCODE_H
#define GRADWEIR_CLIENT_CLIENT_ENCODE_H

#include "client/client_internal.h"

enum client_source { CLIENT_GRADIENT, CLIENT_PARAMETERS, CLIENT_ACCUMULATED };

struct client_encoding {
    struct gradweir_client *client;
    enum client_source source;
    enum arithmetic_codec codec;
    uint32_t buffer;
    uint64_t at;     /* elements that are in */
    uint32_t tensor; /* of model->by_offset: where the next block begins */
    double sum_squares;
    uint32_t crc;  /* of a block of the model, as far as it is encoded */
    uint64_t owed; /* error feedback: elements before this one have taken their rest along */
    bool streams;  /* some are far: all come by a stream (client_memory.h) */
    bool direct;   /* it is made in a GPU's memory (client_direct.h) */
    gradweir_status status; /* OK, or why it goes no further */
    bool stays;             /* the last chunks do not leave: not waited for, until one has */
    bool no_room;           /* the transport had none for the last chunk: not waited for */
    bool refused;           /* it is not finite, or too large, and will not be admitted */
    uint64_t filled;        /* bytes of the send buffer that will not change any more */
    double norm;            /* of the whole, and its digest: once all is in */
    uint64_t digest;
};

/* The memory that `source` means is there (client_body_has_...). ERR_LOST and the like for far
 * memory. rewind: its blocks are asked for from the first on once more. */
gradweir_status client_encode_begin(struct client_encoding *encoding,
                                    struct gradweir_client *client, enum client_source source,
                                    uint32_t buffer);

/* Norm and digest of a rank's share, which is in: client_parts.c. */
void client_part_measure(const struct client_encoding *encoding, double *norm, uint64_t *digest);

gradweir_status client_encode_rewind(struct client_encoding *encoding);

/* Goes on for at least `bytes` more of the send buffer (whole blocks), or to the end. False: all is
 * in, MOMENTS too, with norm and digest; or encoding->status says why not. */
bool client_encode_more(struct client_encoding *encoding, uint64_t bytes);

/* CRC32C of `length` bytes at `offset` of a send buffer: joined from those of its blocks where it
 * is whole blocks, else read again: ERR_AGAIN, ERR_LOST where a GPU's memory cannot be read now. */
gradweir_status client_encode_crc(const struct gradweir_client *client, uint32_t buffer,
                                  uint64_t offset, uint64_t length, uint32_t *crc);

/* Elements [first, first + n) as float32, at most a block: where the caller has them, or gathered
 * in client->block. Blocks are asked for in order. NULL: encoding->status says why. */
const float *client_encode_source(struct client_encoding *encoding, uint64_t first, uint64_t n);

/* First parameters that lie in bound memory as they lie in a body, end to end: they are sent from
 * there, and a large model is not copied once more. Else NULL. */
const uint8_t *client_encode_lies(const struct client_encoding *encoding);

/* Of a rank's share only its runs are written, measured and sent. */
gradweir_status client_encode_share(struct client_encoding *encoding,
                                    struct session_push_request *what);

/* client_room.c. Room for the chunk that is made next, of `chunk` bytes or fewer at a range's end,
 * if the transport has some; it is waited for while there will be. Returns the chunk's bytes. */
uint64_t client_room_take(struct client_encoding *encoding, uint64_t chunk);

/* Where in it the bytes [offset, offset + length) of the body are made as well; NULL: nowhere.
 * They are asked for in order, once. */
void *client_room_next(struct gradweir_client *client, uint64_t offset, uint64_t length);

/* The chunk that leaves, if it was made there: it is the transport's then. Else NULL. */
const uint8_t *client_room_use(struct gradweir_client *client, const struct session_action *action);

/* What was not used. */
void client_room_back(struct gradweir_client *client);

/* client_encode_push.c. Makes the body of a push (buffer, purpose, basis, samples are filled in)
 * and hands it to the session, chunk by chunk; norm and digest come back in *what. When far memory
 * fails meanwhile, *told says whether the session has heard of the push, and so has its buffer
 * until the session ends. */
gradweir_status client_encode_push(struct gradweir_client *client, enum client_source source,
                                   struct session_push_request *what, bool *told);

#endif
