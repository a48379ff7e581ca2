#include <functional>

#include "kernels/cpu/nn/channels.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace row_conv_kernels {
namespace {

// Calls body(first row, end row) for each sequence: of the LoD, or of the batch of a rank 3 tensor.
template <typename Body>
Status for_sequences(const Tensor& x, Body&& body) {
  if (!x.lod().empty()) {
    // as in the original, the first of several levels
    const llvm::ArrayRef<int64_t> offsets = x.lod().level(0);
    if (x.rank() != 2 || offsets.back() != x.dim(0))
      return KernelContext::error("X must be rows that LoD {} ends with, found {}",
                                  x.lod().to_string(), describe(x));
    for (size_t i = 0; i + 1 < offsets.size(); ++i) body(offsets[i], offsets[i + 1]);
    return Ok();
  }
  if (x.rank() != 3)
    return KernelContext::error("X must have a LoD or 3 dims, found {}", describe(x));
  for (int64_t i = 0; i < x.dim(0); ++i) body(i * x.dim(1), (i + 1) * x.dim(1));
  return Ok();
}

struct RowConvOperands {
  const Tensor* x;
  const Tensor* filter;
};

StatusOr<RowConvOperands> operands_of(const KernelContext& ctx, ArgIndex x_arg,
                                      ArgIndex filter_arg) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, x_arg, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const filter, needed(ctx, filter_arg, "Filter"));
  if (x->rank() >= 2 && filter->rank() == 2 && filter->dtype() == x->dtype() &&
      filter->dim(1) == x->dims().back())
    return RowConvOperands{x, filter};
  return ctx.error("Filter {} must have the columns of X {}", describe(*filter), describe(*x));
}

// Calls body(row, filter row) for all rows of a sequence and all filter rows that fit after them.
template <typename Body>
void for_pairs(int64_t begin, int64_t end, int64_t ahead, Body&& body) {
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t k = 0; k < std::min(ahead, end - r); ++k) body(r, k);
  }
}

StatusOr<Kernel> row_conv(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex filter = op.input("Filter");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RowConvOperands operands, operands_of(ctx, x, filter));
    const auto [in, weights] = operands;
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t width = in->dims().back();
      const T* const w = weights->data<T>();
      const T* const from = in->data<T>();
      T* const to = ctx.out(out).data<T>();
      std::fill_n(to, in->numel(), T{0});
      return for_sequences(*in, [&](int64_t begin, int64_t end) {
        for_pairs(begin, end, weights->dim(0), [&](int64_t r, int64_t k) {
          for (int64_t i = 0; i < width; ++i)
            to[r * width + i] += from[(r + k) * width + i] * w[k * width + i];
        });
      });
    });
  });
}

StatusOr<Kernel> row_conv_grad(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex filter = op.input("Filter");
  const ArgIndex out_grad = op.input("Out@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  const ArgIndex filter_grad = op.output("Filter@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RowConvOperands operands, operands_of(ctx, x, filter));
    const auto [in, weights] = operands;
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, result_like(ctx, x_grad, *in));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dw, result_like(ctx, filter_grad, *weights));
    if (dx != nullptr) fill_zero(*dx);
    if (dw != nullptr) fill_zero(*dw);
    const Tensor* const dout = ctx.find_in(out_grad);
    if (dout == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(check_alike(*in, "X", *dout, "Out@GRAD"));
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t width = in->dims().back();
      const T* const g = dout->data<T>();
      return for_sequences(*in, [&](int64_t begin, int64_t end) {
        for_pairs(begin, end, weights->dim(0), [&](int64_t r, int64_t k) {
          for (int64_t i = 0; dx != nullptr && i < width; ++i) {
            dx->data<T>()[(r + k) * width + i] +=
                g[r * width + i] * weights->data<T>()[k * width + i];
          }
          for (int64_t i = 0; dw != nullptr && i < width; ++i) {
            dw->data<T>()[k * width + i] += g[r * width + i] * in->data<T>()[(r + k) * width + i];
          }
        });
      });
    });
  });
}

}  // namespace
}  // namespace row_conv_kernels

void add_nn_row_conv(KernelRegistry& registry) {
  using namespace row_conv_kernels;
  registry.add("row_conv", row_conv);
  registry.add("row_conv_grad", row_conv_grad);
}

}  // namespace millrace::kernels
