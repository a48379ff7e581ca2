#pragma once

#include <cstdint>

#include "kernels/cpu/nn/few_places_loops.h"
#include "kernels/cpu/nn/norm_columns.h"
#include "kernels/cpu/unary.h"

namespace millrace::kernels {

/// Loops over floats, compiled for processors with vectors of 512 bits: the same formulas as those
/// that all kernels are compiled with, at twice the rate where exponentials make up the time.
struct WideLoops {
  detail::UnaryLoop<float> gelu;
  detail::UnaryLoop<float> gelu_grad;
  /// masked_softmax() and softmax_gradient() of attention_rows.h.
  void (*masked_softmax)(float* x, const float* mask, bool mask_advances, int64_t count);
  void (*softmax_gradient)(const float* p, float* dp, int64_t count);
  NormForwardLoop norm_forward;
  NormBackwardLoop norm_backward;
  FewPlacesLoop few_places_forward;
  FewPlacesLoop few_places_data;
  FewPlacesWeights few_places_weights;
};

/// Null if the processor, or the build, has none, or ONEDNN_MAX_CPU_ISA forbids AVX-512.
/// Thread-safety: any.
const WideLoops* wide_loops();

}  // namespace millrace::kernels
