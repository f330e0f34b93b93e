/* The families that the arithmetic and the window law are checked with. Every check runs on each
 * instruction set that this machine has, and on the functions per element that nvcc compiles too
 * (tests/unit/element_set.h). */
#ifndef GRADWEIR_TESTS_VECTORS_VECTORS_COMMON_H
#define GRADWEIR_TESTS_VECTORS_VECTORS_COMMON_H

#include "common/arithmetic.h"
#include "tests/vectors/vector_case.h"

void check_clip_norm(const struct vector_case *c);
void check_halfprec(const struct vector_case *c);
void check_optim(const struct vector_case *c);
void check_window(const struct vector_case *c);

/* The i-th set to check with, NULL past the last, which is that of the functions per element. */
const struct arithmetic *check_set_at(size_t i);

/* A parameter that only some cases have. */
double number_or(const struct vector_case *c, const char *key, double otherwise);

#endif
