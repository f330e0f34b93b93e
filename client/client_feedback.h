/* Error feedback: what an encoding has left out of a gradient goes into the next one, and so does
 * what was refused. client_feedback.c */
#ifndef GRADWEIR_CLIENT_CLIENT_FEEDBACK_H
#define GRADWEIR_CLIENT_CLIENT_FEEDBACK_H

#include "client/client_encode.h"

/* Once the job's codec is known: the rest, if it is wanted; and whether a rank's share can be
 * encoded. ERR_UNSUPPORTED names the tensor whose part cuts a block of int8; ERR_NO_MEMORY. */
gradweir_status client_feedback_take(struct gradweir_client *client);
void client_feedback_free(struct gradweir_client *client);

/* Elements [first, first + n), at most a block, into the send buffer, with what is owed of them;
 * their measure goes on in *running, their CRC32C in encoding->crc. */
void client_feedback_encode(struct client_encoding *encoding, const float *from, uint64_t first,
                            uint64_t n, struct arithmetic_running *running);

/* The gradient will not be admitted: an element of it is not finite, or above the job's
 * magnitude_max. The rest is again what it was, to within
 * the rounding of gradient + rest, which is never more than the rest itself; memory is still the
 * caller's gradient. */
void client_feedback_undo(struct client_encoding *encoding);

/* A push of this buffer has its verdict: what was refused is owed again. */
void client_feedback_verdict(struct gradweir_client *client, uint32_t buffer, uint32_t verdict);

#endif
