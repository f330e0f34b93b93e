/* The families that the arithmetic and the window law are checked with. Every check runs on each
 * instruction set that this machine has. */
#ifndef GRADWEIR_TESTS_VECTORS_VECTORS_COMMON_H
#define GRADWEIR_TESTS_VECTORS_VECTORS_COMMON_H

#include "tests/vectors/vector_case.h"

void check_clip_norm(const struct vector_case *c);
void check_halfprec(const struct vector_case *c);
void check_optim(const struct vector_case *c);
void check_window(const struct vector_case *c);

/* A parameter that only some cases have. */
double number_or(const struct vector_case *c, const char *key, double otherwise);

#endif
