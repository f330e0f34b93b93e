/* A set of loops that is nothing but the functions per element (arithmetic_element.h, element_*.h):
 * what a GPU's threads do, one after the other. */
#ifndef GRADWEIR_UNIT_ELEMENT_SET_H
#define GRADWEIR_UNIT_ELEMENT_SET_H

#include "common/arithmetic.h"

/* encode_rest, decode_add and whatever else has no kernel are those of
 * arithmetic_scalar. */
struct arithmetic element_set(void);

#endif
