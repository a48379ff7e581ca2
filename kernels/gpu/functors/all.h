#pragma once

#include <cstddef>
#include <type_traits>

#include "kernels/gpu/functors/elementwise.h"
#include "kernels/gpu/functors/finish_conv.h"
#include "kernels/gpu/functors/loss.h"
#include "kernels/gpu/functors/norm.h"
#include "kernels/gpu/functors/optimizer.h"
#include "kernels/gpu/functors/plain_products.h"
#include "kernels/gpu/functors/pool.h"
#include "kernels/gpu/functors/rows.h"

/// The arithmetic of millrace's GPU kernels. A functor is a struct of numbers and pointers to
/// device memory. Its call operator computes one element, or one row by a team of threads. Both the
/// CUDA compiler and the C++ compiler read these headers, so they include neither fmt nor LLVM. The
/// operators are constexpr, which the CUDA compiler accepts for host and device code.
///
/// A team (for row functors) has rank() in [0, size()), and sum(x) and max(x) over its threads,
/// which are also barriers.
/// A new functor is added to one of the lists below. Its number in the list is how the C++ side
/// names it to the CUDA side (kernels/gpu/launch.h), so both sides must be built from the same
/// list.
namespace millrace::gpu {

template <typename... Functors>
struct FunctorList {
  static constexpr size_t kSize = sizeof...(Functors);
};

/// The number of a functor in a list; does not compile if the functor is missing from the list.
template <typename Functor, typename... Functors>
constexpr size_t index_of(FunctorList<Functors...> /*list*/) {
  static_assert((std::is_same_v<Functor, Functors> || ...), "add the functor to the list");
  size_t index = 0;
  (void)((std::is_same_v<Functor, Functors> ? true : (++index, false)) || ...);
  return index;
}

/// Functors that compute one element.
using EachFunctors =
    FunctorList<Fill, FillFrom, Scale, Binary<Add>, Binary<Subtract>, Binary<Multiply>,
                Binary<Divide>, Unary<Relu>, Unary<Sigmoid>, Unary<Tanh>, Unary<Sqrt>,
                Unary<Square>, Gradient<ReluGradient>, Gradient<SigmoidGradient>,
                Gradient<TanhGradient>, Gradient<SquareGradient>, EntropyGradient,
                SoftmaxEntropyGradient, PoolForward, PoolFirstMaximum, PoolBackward, NormInference,
                Descend, DescendWithMomentum, DescendByMoments, AdvancePowers, MultiplyElement,
                ConvolveOutput, ConvolveInputGradient, FinishConv>;

/// Functors that compute one row.
using RowFunctors =
    FunctorList<SumMiddle, Softmax, SoftmaxGradient, Entropy, SoftmaxEntropy, NormSums,
                NormTraining, NormBackwardSums, NormBackward, ConvolveFilterGradient>;

}  // namespace millrace::gpu
