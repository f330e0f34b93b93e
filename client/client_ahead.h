/* Bound memory that is written while a pull is still arriving.
 *
 * A pull lands in the receive buffer, and goes into bound memory when all of it is there: a copy of
 * the whole model at the end, when the wire is still. Ahead, each body is copied on when it has
 * landed, while the next one is on its way. Should the wait fail after all, bound memory gets back
 * what it held, from the buffer of the pull before: that one is kept meanwhile as a send buffer
 * that no push uses, so it costs no memory.
 *
 * So it is done only with bound memory of the host, inside one wait for one plain pull: nobody else
 * can push or read then. Only when bound memory holds what the last pull brought, and when a send
 * buffer is free; else it is the copy at the end. What the caller has written into bound memory
 * since the last pull is lost when such a wait fails; the public header says so. */
#ifndef GRADWEIR_CLIENT_CLIENT_AHEAD_H
#define GRADWEIR_CLIENT_CLIENT_AHEAD_H

#include "client/client_internal.h"

/* The wait for a pull begins: from here on it may go ahead. */
void client_ahead_allow(struct gradweir_client *client, const struct result *result,
                        uint32_t timeout_ms);

/* A body of the receive buffer is about to be taken: the first decides. */
void client_ahead_begin(struct gradweir_client *client);

/* A body has landed as it was sent. */
void client_ahead_landed(struct gradweir_client *client, const void *place, uint64_t bytes);

/* The same in one pass, of a body that lies at `body`, which somebody else may write to meanwhile:
 * copied to `place`, and on into bound memory if `on` and the pull goes ahead. Its CRC32C, of what
 * was copied. When it is not what was sent, bound memory has it all the same, until the body comes
 * again or the wait fails. */
uint32_t client_ahead_take(struct gradweir_client *client, void *place, const void *body,
                           uint64_t bytes, bool on);

/* The wait is over. True: bound memory holds the pull that `done` says is there. */
bool client_ahead_end(struct gradweir_client *client, bool done);

#endif
