/* Threads that help one owner with work that is cut into pieces. The owner does pieces too, and
 * never has to wait for a thread that has not begun: whoever is free takes the next piece. Pieces
 * of one work may be done at once and in any order, so what each writes must be its own.
 *
 * Helpers without work spin for some microseconds (not at all when threads outnumber cores), then
 * sleep. Calls come from the owner's thread. */
#ifndef GRADWEIR_COMMON_HELPERS_H
#define GRADWEIR_COMMON_HELPERS_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HELPERS_MAX 63

struct helpers;

/* count: from 1 to HELPERS_MAX threads. crowded: threads outnumber cores. ERR_IO: no threads. */
gradweir_status helpers_new(uint32_t count, bool crowded, struct helpers **helpers);

/* Pieces that nobody has taken yet are never done. NULL is accepted. */
void helpers_free(struct helpers *helpers);

/* One work at a time. Borrowed until helpers_done. */
void helpers_begin(struct helpers *helpers, void (*piece)(void *context, size_t i), void *context,
                   size_t pieces);

/* A piece for the owner, who does it and says so. False: all are taken. */
bool helpers_take(struct helpers *helpers, size_t *i);
void helpers_did(struct helpers *helpers);

/* All pieces are done, and what they wrote is seen. While a helper still works at its piece it may
 * be waited for, some 200 us at most: the owner has nothing better to do only after a few calls. */
bool helpers_done(struct helpers *helpers);

#endif
