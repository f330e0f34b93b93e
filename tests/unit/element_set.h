/* A set of loops that is nothing but element_step.h: what a GPU's threads do, one after the other.
 */
#ifndef GRADWEIR_UNIT_ELEMENT_SET_H
#define GRADWEIR_UNIT_ELEMENT_SET_H

#include "common/arithmetic.h"

/* average and step; its other members are those of arithmetic_scalar. */
struct arithmetic element_set(void);

#endif
