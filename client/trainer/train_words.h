/* How far apart two words are: for the nearest one to a word that nobody knows. */
#ifndef GRADWEIR_TRAINER_TRAIN_WORDS_H
#define GRADWEIR_TRAINER_TRAIN_WORDS_H

#include <stddef.h>

/* How many letters must change to make a out of b (Levenshtein); SIZE_MAX when b has 64 or more. */
size_t train_word_distance(const char *a, const char *b);

#endif
