/* Codecs: in which numbers a gradient travels and waits in its slot. The job has one, chosen at
 * start (gradient_dtype); parameters are float32 whatever it is. A body of n elements:
 *
 *   float32, bfloat16, float16   the elements in a row, little-endian
 *   int8                         blocks of CODEC_BLOCK elements, the last may be short: a float32
 *                                scale, then one signed byte per element; value = scale × byte
 *
 * 256 elements, because the blocks of every model are multiples of it (model.h): shards, and tiles
 * of a step, never cut one; 1.6 % go for scales, and a spike coarsens only its neighbours. What
 * each codec does to an element is in arithmetic_element.h, the loops are in arithmetic_loops.h.
 *
 * An element too large for float16 (65520 and more) becomes infinite and the gradient NOT_FINITE
 * with its tensor named: nothing is clipped in silence. */
#ifndef GRADWEIR_COMMON_CODEC_H
#define GRADWEIR_COMMON_CODEC_H

#include "common/arithmetic.h"

#include <stdbool.h>
#include <stdint.h>

#define CODEC_BLOCK ELEMENT_INT8_BLOCK
#define CODEC_NAMES "float32|bfloat16|float16|int8" /* in the order of enum arithmetic_codec */

/* "float32", ...; NULL for a number that is none. */
const char *codec_name(uint32_t codec);

/* False for an unknown name. bf16 and fp16 are known too. */
bool codec_find(const char *name, enum arithmetic_codec *codec);

/* Bytes of n elements that begin a block. Of n in whole blocks (or of any n, but for int8) this is
 * also where element n lies. n < 2^40. */
uint64_t codec_bytes(enum arithmetic_codec codec, uint64_t n);

/* Elements in one piece: runs of elements are cut at multiples of it. 1, or CODEC_BLOCK for int8.
 */
uint64_t codec_grain(enum arithmetic_codec codec);

/* Bytes of a chunk: at most `bytes` (but at least one block), and whole blocks of int8. */
uint64_t codec_chunk(enum arithmetic_codec codec, uint64_t bytes);

/* How many elements `bytes` hold, as far as they can be of this codec. */
uint64_t codec_elements(enum arithmetic_codec codec, uint64_t bytes);

/* Element i as float32. */
float codec_element(enum arithmetic_codec codec, const void *data, uint64_t i);

/* The first of n elements that was not finite, or UINT64_MAX: asked only once measure has found
 * one. */
uint64_t codec_first_not_finite(enum arithmetic_codec codec, const void *data, uint64_t n);

#endif
