#pragma once

#include <cstdint>

#include <llvm/ADT/SmallVector.h>

#include "kernels/cpu/onednn.h"
#include "kernels/kernel.h"

// What the kernels of fc and int8_fc share: arguments, checks, and the library's product.
namespace millrace::kernels {

/// Arguments of a product with weights into which the ops after it are fused.
struct FcArgs {
  ArgIndex x;         ///< rows to multiply
  ArgIndex w;         ///< [inner, columns]
  ArgIndex bias;      ///< [columns], or absent
  ArgIndex residual;  ///< of the shape of out, or absent
  ArgIndex out;
  size_t row_dims = 1;  ///< leading dims of x that count rows
  dnn::Activation activation = dnn::Activation::kNone;
};
/// Errors: kUnimplemented for an activation without a kernel.
StatusOr<FcArgs> read_fc_args(const KernelSetup& op);

/// Sizes of one call.
struct FcShape {
  int64_t rows = 1;
  int64_t inner = 1;
  int64_t columns = 0;
  [[nodiscard]] bool empty() const { return rows == 0 || inner == 0 || columns == 0; }
};
/// Errors: dims of the operands that do not fit; Bias or ResidualData of another element type than
/// Input.
/// \param padding  rows and columns of W that are not part of the weights
StatusOr<FcShape> fc_shape(const KernelContext& ctx, const FcArgs& fc, int64_t padding);

/// The summand; null if there is none or if the program has already written it into the result.
const Tensor* summand_apart(const KernelContext& ctx, const FcArgs& fc);
/// True if the program has written the summand into the result.
bool accumulates(const KernelContext& ctx, const FcArgs& fc);

/// The product of f32, with its bias, summand and activation.
dnn::Product fc_product(const KernelContext& ctx, const FcArgs& fc, const FcShape& shape);
/// Runs a primitive that was made for that product, or for one of other factors.
/// \param bias  null without one
Status run_fc(const KernelContext& ctx, const FcArgs& fc, const dnn::Primitive& primitive,
              const void* x, const Tensor& weights, const void* bias);

}  // namespace millrace::kernels
