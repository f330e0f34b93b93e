/* Messages and records with random contents within the bounds of their tables. */
#ifndef GRADWEIR_UNIT_WIRE_RANDOM_H
#define GRADWEIR_UNIT_WIRE_RANDOM_H

#include "common/message.h"
#include "common/random.h"

#include <stdbool.h>

enum { WIRE_KINDS_MAX = 64 };

/* Numbers of all kinds; returns how many. */
size_t wire_message_kinds(uint32_t kinds[WIRE_KINDS_MAX]);
size_t wire_record_kinds(uint32_t kinds[WIRE_KINDS_MAX]);

/* small: counts and texts are short. A page's data lies in a static buffer until the next call. */
void wire_random_message(struct random *random, uint32_t kind, bool small, struct message *out);
void wire_random_record(struct random *random, uint32_t kind, bool small, struct record *out);

/* All fields hold the same bits. */
bool wire_message_same(const struct message *a, const struct message *b);
bool wire_record_same(const struct record *a, const struct record *b);

#endif
