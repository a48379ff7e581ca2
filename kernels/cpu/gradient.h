#pragma once

#include <cstdint>
#include <utility>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"

/// What gradient kernels do before their arithmetic: find the tensors, size the result, and return
/// zeros where no gradient arrives.
namespace millrace::kernels {

/// The tensors of an op that computes the gradient of one input from that of one output.
struct GradientTensors {
  const Tensor* x = nullptr;     ///< the input of the forward op; null after find()
  const Tensor* from = nullptr;  ///< gradient of the output; null if no op has computed it
  Tensor* to = nullptr;          ///< gradient of the input; null if no op reads it
  /// True if there is something to compute. Otherwise the kernel is done: `to` is absent, or zeros.
  explicit operator bool() const { return from != nullptr && to != nullptr; }
};

/// What the result contains when the arithmetic starts.
enum class StartsAs : uint8_t {
  kUnset,  ///< any values: the kernel writes all elements
  kZeros,  ///< zeros: the kernel adds to elements, or writes some of them only
};

/// The arguments of such an op. Cheap to copy; kernels capture it.
class GradientArgs {
 public:
  /// \param x, out  slots of the forward op; their gradients are in `x`@GRAD and `out`@GRAD. The
  ///                names must outlive the kernel, as literals do.
  explicit GradientArgs(const KernelSetup& op, const char* x = "X", const char* out = "Out");

  /// Arguments under other names, for kernels that serve an op and its gradient.
  /// \param from, to  slot of the input and of the output
  static GradientArgs named(const KernelSetup& op, llvm::StringRef from, llvm::StringRef to);

  /// For kernels that do not read X: the result keeps the dims that shape inference gave to it. One
  /// that is not initialized, because no shape is known, is not filled.
  [[nodiscard]] GradientTensors find(const KernelContext& ctx, StartsAs start) const;

  /// Like find(), for ops whose output gradient must exist. Errors: it holds no tensor.
  [[nodiscard]] StatusOr<GradientTensors> find_required(const KernelContext& ctx,
                                                        StartsAs start) const;

  /// For kernels that read X: the result is resized like X.
  /// Errors: X holds no tensor; kResource.
  [[nodiscard]] StatusOr<GradientTensors> like_x(const KernelContext& ctx, StartsAs start) const;

  /// Like like_x(), for ops whose output gradient must exist; the result is not filled.
  /// Errors: X or the gradient of the output holds no tensor; kResource.
  [[nodiscard]] StatusOr<GradientTensors> required(const KernelContext& ctx) const;

 private:
  GradientArgs() = default;
  const char* x_slot_ = "X";      ///< for messages
  const char* out_slot_ = "Out";  ///< for messages; without "@GRAD"
  ArgIndex x_;                    ///< the input of the forward op
  ArgIndex from_;                 ///< gradient of the output
  ArgIndex to_;                   ///< gradient of the input
};

/// The kernel of an op whose output gradient must exist: compute(ctx, tensors) runs where the
/// gradient of X is read, with the tensors of GradientArgs::required(). It returns a Status.
template <typename Compute>
Kernel required_gradient(const KernelSetup& op, Compute compute) {
  return [gradient = GradientArgs(op),
          compute = std::move(compute)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GradientTensors g, gradient.required(ctx));
    return g ? compute(ctx, g) : Ok();
  };
}

/// Fills all outputs that the op has with zeros, for ops with several results whose incoming
/// gradient is missing.
Status zero_results(const KernelContext& ctx, llvm::ArrayRef<ArgIndex> results);

/// Runs compute(tag) with the element type of the incoming gradient, where it is one of Types;
/// without a gradient, the results become zeros.
template <typename Types, typename Compute>
Status for_gradient(const KernelContext& ctx, ArgIndex gradient, llvm::ArrayRef<ArgIndex> results,
                    Compute&& compute) {
  const Tensor* const from = ctx.find_in(gradient);
  if (from == nullptr) return zero_results(ctx, results);
  return dispatch<Types>(from->dtype(), std::forward<Compute>(compute));
}

}  // namespace millrace::kernels
