/* From a codec that is known when a call comes to one that a kernel is compiled for. */
#ifndef GRADWEIR_GPU_CODEC_DISPATCH_CUH
#define GRADWEIR_GPU_CODEC_DISPATCH_CUH

#include "common/arithmetic.h"

#include <type_traits>

/* Calls start(constant), the constant being usable as a template argument. */
template <typename Start> void codec_dispatch(arithmetic_codec codec, const Start &start)
{
    switch (codec) {
    case ARITHMETIC_F32: start(std::integral_constant<int, ARITHMETIC_F32>{}); return;
    case ARITHMETIC_BF16: start(std::integral_constant<int, ARITHMETIC_BF16>{}); return;
    case ARITHMETIC_F16: start(std::integral_constant<int, ARITHMETIC_F16>{}); return;
    case ARITHMETIC_INT8: start(std::integral_constant<int, ARITHMETIC_INT8>{}); return;
    }
}

#endif
