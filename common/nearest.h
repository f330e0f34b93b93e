/* How much two names differ, so that a wrong one can be answered with the nearest right one. */
#ifndef GRADWEIR_COMMON_NEAREST_H
#define GRADWEIR_COMMON_NEAREST_H

/* Letters to insert, leave out or replace (Levenshtein). - and _ count as equal; only the first 63
 * bytes are looked at. */
unsigned nearest_distance(const char *a, const char *b);

#endif
