#include <algorithm>
#include <memory>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/sequence/row_windows.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Window of rows times a matrix: the windows are copied into a matrix, then one matrix product
// follows.
namespace millrace::kernels {
namespace conv {
namespace {

RowWindow window_of(const KernelSetup& op) {
  return {op.attr<int32_t>("contextLength"), op.attr<int32_t>("contextStart"),
          op.attr<bool>("paddingTrainable")};
}

Status check_padding(const KernelContext& ctx, const Tensor* padding, const RowWindow& w,
                     const Tensor& x) {
  if (!w.padded) return Ok();
  if (padding != nullptr && padding->dtype() == x.dtype() &&
      padding->numel() == w.padding_rows() * row_width(x))
    return Ok();
  return ctx.error("PaddingData must have {} rows of X {}, found {}", w.padding_rows(), describe(x),
                   padding == nullptr ? "none" : describe(*padding));
}

Status check_filter(const KernelContext& ctx, const Tensor& x, const Tensor& filter,
                    const RowWindow& w) {
  if (x.rank() == 2 && filter.rank() == 2 && filter.dim(0) == w.length * x.dim(1) &&
      filter.dtype() == x.dtype())
    return Ok();
  return ctx.error("Filter must have {} rows of the type of X {}, found {}",
                   w.length * row_width(x), describe(x), describe(filter));
}

StatusOr<Kernel> sequence_conv(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex padding = op.input("PaddingData");
  const ArgIndex filter = op.input("Filter");
  const ArgIndex out = op.output("Out");
  const RowWindow w = window_of(op);
  auto gemm = std::make_shared<Gemm>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    const Tensor& weights = ctx.in(filter);
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, sequences_of(from, "X"));
    MILLRACE_RETURN_IF_ERROR(check_filter(ctx, from, weights, w));
    const Tensor* const pad = w.padded ? ctx.find_in(padding) : nullptr;
    MILLRACE_RETURN_IF_ERROR(check_padding(ctx, pad, w, from));
    return dispatch<FloatTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const GemmShape shape = windows_product(from, weights);
      MILLRACE_ASSIGN_OR_RETURN(
          std::byte* const scratch,
          ctx.device().scratch(static_cast<size_t>(shape.rows * shape.inner) * sizeof(T)));
      auto* const windows = reinterpret_cast<T*>(scratch);
      write_windows(offsets, w, from.data<T>(), pad == nullptr ? nullptr : pad->data<T>(),
                    from.dim(1), windows);
      return (*gemm)(ctx.device(), shape, windows, weights.data<T>(), ctx.out(out).data<T>());
    });
  });
}

struct ConvGradSlots {
  ArgIndex x;
  ArgIndex padding;
  ArgIndex filter;
  ArgIndex dout;
  ArgIndex dx;
  ArgIndex dpadding;
  ArgIndex dfilter;
};

struct ConvGradTensors {
  const Tensor* x;
  const Tensor* filter;
  const Tensor* dout;
  const Tensor* padding;
  Tensor* dx;
  Tensor* dpadding;
  Tensor* dfilter;
};

template <typename T>
Status backward(const KernelContext& ctx, llvm::ArrayRef<int64_t> offsets, const RowWindow& w,
                const ConvGradTensors& t, Gemm& gemm) {
  const int64_t width = t.x->dim(1);
  const int64_t rows = t.x->dim(0);
  const int64_t inner = t.filter->dim(0);
  const int64_t columns = t.filter->dim(1);
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const scratch,
                            ctx.device().scratch(static_cast<size_t>(rows * inner) * sizeof(T)));
  auto* const windows = reinterpret_cast<T*>(scratch);
  if (t.dfilter != nullptr) {
    write_windows(offsets, w, t.x->data<T>(), t.padding == nullptr ? nullptr : t.padding->data<T>(),
                  width, windows);
    MILLRACE_RETURN_IF_ERROR(
        gemm(ctx.device(), {.rows = inner, .columns = columns, .inner = rows, .a_transposed = true},
             windows, t.dout->data<T>(), t.dfilter->data<T>()));
  }
  if (t.dx == nullptr && t.dpadding == nullptr) return Ok();
  MILLRACE_RETURN_IF_ERROR(
      gemm(ctx.device(), {.rows = rows, .columns = inner, .inner = columns, .b_transposed = true},
           t.dout->data<T>(), t.filter->data<T>(), windows));
  for (Tensor* const to : {t.dx, t.dpadding}) {
    if (to != nullptr) std::fill_n(to->data<T>(), to->numel(), T(0));
  }
  each_place(offsets, w, [&](int64_t row, int64_t place, int64_t source, int64_t pad) {
    Tensor* const to = source >= 0 ? t.dx : t.dpadding;
    if (to == nullptr) return;
    const T* const from = windows + (row * w.length + place) * width;
    T* const sum = to->data<T>() + (source >= 0 ? source : pad) * width;
    for (int64_t k = 0; k < width; ++k) sum[k] += from[k];
  });
  return Ok();
}

StatusOr<Kernel> sequence_conv_grad(const KernelSetup& op) {
  const ConvGradSlots slots{op.input("X"),           op.input("PaddingData"),
                            op.input("Filter"),      op.input("Out@GRAD"),
                            op.output("X@GRAD"),     op.output("PaddingData@GRAD"),
                            op.output("Filter@GRAD")};
  const RowWindow w = window_of(op);
  auto gemm = std::make_shared<Gemm>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    ConvGradTensors t{};
    MILLRACE_ASSIGN_OR_RETURN(t.x, needed(ctx, slots.x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(t.filter, needed(ctx, slots.filter, "Filter"));
    MILLRACE_ASSIGN_OR_RETURN(t.dout, needed(ctx, slots.dout, "Out@GRAD"));
    t.padding = w.padded ? ctx.find_in(slots.padding) : nullptr;
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, sequences_of(*t.x, "X"));
    MILLRACE_RETURN_IF_ERROR(check_filter(ctx, *t.x, *t.filter, w));
    MILLRACE_RETURN_IF_ERROR(check_padding(ctx, t.padding, w, *t.x));
    if (t.dout->numel() != t.x->dim(0) * t.filter->dim(1) || t.dout->dtype() != t.x->dtype())
      return ctx.error("Out@GRAD must be [{}, {}], found {}", t.x->dim(0), t.filter->dim(1),
                       describe(*t.dout));
    MILLRACE_ASSIGN_OR_RETURN(t.dx, result_like(ctx, slots.dx, *t.x));
    MILLRACE_ASSIGN_OR_RETURN(t.dfilter, result_like(ctx, slots.dfilter, *t.filter));
    if (t.padding != nullptr) {
      MILLRACE_ASSIGN_OR_RETURN(t.dpadding, result_like(ctx, slots.dpadding, *t.padding));
    }
    return dispatch<FloatTypes>(t.x->dtype(), [&](auto tag) {
      return backward<typename decltype(tag)::type>(ctx, offsets, w, t, *gemm);
    });
  });
}

}  // namespace
}  // namespace conv

void add_sequence_conv(KernelRegistry& registry) {
  using namespace conv;
  registry.add("sequence_conv", sequence_conv);
  registry.add("sequence_conv_grad", sequence_conv_grad);
}

}  // namespace millrace::kernels
