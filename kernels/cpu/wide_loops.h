#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/int8_loops.h"
#include "kernels/cpu/unary.h"

namespace millrace::kernels {

struct NormForward;   // nn/norm_columns.h
struct NormBackward;  // nn/norm_columns.h
struct PlacePair;     // nn/few_places_loops.h
struct PlaceSizes;    // nn/few_places_loops.h

/// Works on the columns [begin, end) of norm_column_count().
using NormForwardLoop = void (*)(const NormForward& f, int64_t begin, int64_t end);
using NormBackwardLoop = void (*)(const NormBackward& g, int64_t begin, int64_t end);

/// sums[position][image][2][16] = two blocks of a result for eight images, from images that are
/// packed as [block][position][16][image]. `weights` points to the weight blocks of the first
/// channel block of the images.
using FewPlacesLoop = void (*)(const PlaceSizes& sizes, const float* images, const float* weights,
                               float* sums);
/// Gradient of one block of weights, [tap][16][16]. x and y point to the first elements of the
/// blocks of src and of the gradient of dst. The pairs of tap t, in [taps[t], taps[t + 1]), list
/// the elements to multiply.
using FewPlacesWeights = void (*)(const size_t* taps, int64_t tap_count, const PlacePair* pairs,
                                  const float* x, const float* y, float* weights);

/// Loops over floats, compiled for processors with 512-bit vectors: the same formulas as in all
/// other kernels, twice as fast where exponentials dominate the time.
struct WideLoops {
  /// Loops of the formula Gelu (activation/gelu.h).
  detail::UnaryLoop<float> gelu;
  detail::UnaryLoop<float> gelu_grad;  ///< its gradient
  /// masked_softmax() and softmax_gradient() of attention_rows.h.
  void (*masked_softmax)(float* x, const float* mask, bool mask_advances, int64_t count);
  void (*softmax_gradient)(const float* p, float* dp, int64_t count);
  /// norm_forward() and norm_backward() of nn/norm_columns.h.
  NormForwardLoop norm_forward;
  NormBackwardLoop norm_backward;
  /// Those of nn/few_places_loops.h.
  FewPlacesLoop few_places_forward;
  FewPlacesLoop few_places_data;
  FewPlacesWeights few_places_weights;
  /// round_to_int8() of int8_loops.h.
  Int8Facts (*round_to_int8)(const Int8Grid& grid, const float* x, int8_t* out, int64_t count);
};

/// Null if the processor or the build has none, or if cpu_isa.h forbids AVX-512.
/// Thread-safety: any.
const WideLoops* wide_loops();

}  // namespace millrace::kernels
