/* Words of people: how far apart two are, for the nearest one to a word that nobody knows; and text
 * as JSON has it. */
#ifndef GRADWEIR_TRAINER_TRAIN_WORDS_H
#define GRADWEIR_TRAINER_TRAIN_WORDS_H

#include <stddef.h>
#include <stdio.h>

/* How many letters must change to make a out of b (Levenshtein); SIZE_MAX when b has 64 or more. */
size_t train_word_distance(const char *a, const char *b);

/* In double quotes, escaped; null for NULL. */
void train_word_json(FILE *file, const char *text);

#endif
