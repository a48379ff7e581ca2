#include <algorithm>

#include "kernels/cpu/int_list.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// The diagonals of a tensor: start of each, distance of its elements, their number.
struct TensorDiagonals {
  Dims others;  // dims other than the two
  Dims other_strides;
  int64_t first = 0;
  int64_t step = 0;
  int64_t count = 0;

  // Calls body(number of the diagonal, its first element) for all of them, in order.
  template <typename Body>
  void each(Body&& body) const {
    const int64_t total = ops::dims_product(others);
    llvm::SmallVector<int64_t, 6> at(others.size(), 0);
    int64_t place = first;
    for (int64_t i = 0; i < total; ++i) {
      body(i, place);
      for (size_t d = others.size(); d-- > 0;) {
        place += other_strides[d];
        if (++at[d] < others[d]) break;
        place -= others[d] * other_strides[d];
        at[d] = 0;
      }
    }
  }
};

// \param axis1, axis2  rows and columns
StatusOr<TensorDiagonals> diagonals_of(const KernelContext& ctx, llvm::ArrayRef<int64_t> dims,
                                       int64_t axis1, int64_t axis2, int64_t offset) {
  MILLRACE_ASSIGN_OR_RETURN(const int64_t row_axis, axis_of(axis1, dims.size()));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t column_axis, axis_of(axis2, dims.size()));
  if (row_axis == column_axis)
    return ctx.error("rows and columns are both dim {} of {}", row_axis, ops::dims_text(dims));
  const Dims strides = row_major(dims);
  TensorDiagonals out;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (static_cast<int64_t>(i) == row_axis || static_cast<int64_t>(i) == column_axis) continue;
    out.others.push_back(dims[i]);
    out.other_strides.push_back(strides[i]);
  }
  const auto r = static_cast<size_t>(row_axis);
  const auto c = static_cast<size_t>(column_axis);
  const int64_t rows = dims[r] + std::min<int64_t>(offset, 0);
  const int64_t columns = dims[c] - std::max<int64_t>(offset, 0);
  out.count = std::max<int64_t>(std::min(rows, columns), 0);
  out.step = strides[r] + strides[c];
  out.first = offset >= 0 ? offset * strides[c] : -offset * strides[r];
  return out;
}

struct TraceArgs {
  explicit TraceArgs(const KernelSetup& op)
      : axis1(op.attr<int64_t>("axis1")),
        axis2(op.attr<int64_t>("axis2")),
        offset(op.attr<int64_t>("offset")) {}

  // As in the original, the axis with the smaller number is the row axis; this determines the
  // direction of the offset.
  [[nodiscard]] StatusOr<TensorDiagonals> diagonals(const KernelContext& ctx,
                                                    llvm::ArrayRef<int64_t> dims) const {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t first, axis_of(axis1, dims.size()));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t second, axis_of(axis2, dims.size()));
    return diagonals_of(ctx, dims, std::min(first, second), std::max(first, second), offset);
  }

  int64_t axis1;
  int64_t axis2;
  int64_t offset;
};

StatusOr<Kernel> trace(const KernelSetup& op) {
  const ArgIndex x = op.input("Input");
  const ArgIndex out = op.output("Out");
  return Kernel([=, args = TraceArgs(op)](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    MILLRACE_ASSIGN_OR_RETURN(const TensorDiagonals d, args.diagonals(ctx, from.dims()));
    MILLRACE_RETURN_IF_ERROR(size_output(ctx.out(out), from.dtype(), d.others));
    return dispatch<AllNumberTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      T* const to = ctx.out(out).template data<T>();
      d.each([&](int64_t i, int64_t first) {
        Compute<T> sum{};
        for (int64_t k = 0; k < d.count; ++k)
          sum += static_cast<Compute<T>>(from.data<T>()[first + k * d.step]);
        to[i] = static_cast<T>(sum);
      });
      return Ok();
    });
  });
}

StatusOr<Kernel> trace_grad(const KernelSetup& op) {
  const ArgIndex x = op.input("Input");
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dx = op.output("Input@GRAD");
  return Kernel([=, args = TraceArgs(op)](const KernelContext& ctx) -> Status {
    if (!dx) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const like, needed(ctx, x, "Input"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const grad, needed(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const TensorDiagonals d, args.diagonals(ctx, like->dims()));
    if (grad->numel() != ops::dims_product(d.others) || grad->dtype() != like->dtype())
      return ctx.error("Out@GRAD {} does not fit Input {}", describe(*grad), describe(*like));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, dx, *like));
    fill_zero(ctx.device(), *to);
    return dispatch<AllNumberTypes>(like->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      d.each([&](int64_t i, int64_t first) {
        for (int64_t k = 0; k < d.count; ++k)
          to->data<T>()[first + k * d.step] = grad->data<T>()[i];
      });
      return Ok();
    });
  });
}

StatusOr<Kernel> diag_embed(const KernelSetup& op) {
  const ArgIndex x = op.input("Input");
  const ArgIndex out = op.output("Out");
  const auto dim1 = op.attr<int64_t>("dim1");
  const auto dim2 = op.attr<int64_t>("dim2");
  const auto offset = op.attr<int64_t>("offset");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    Tensor& to = ctx.out(out);
    MILLRACE_ASSIGN_OR_RETURN(const TensorDiagonals d,
                              diagonals_of(ctx, to.dims(), dim1, dim2, offset));
    if (from.rank() == 0 || d.count != from.dim(-1) ||
        d.count * ops::dims_product(d.others) != from.numel() || to.dtype() != from.dtype())
      return ctx.error("Input {} does not fit the diagonals of Out {}", describe(from),
                       describe(to));
    fill_zero(ctx.device(), to);
    return dispatch<AllTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      d.each([&](int64_t i, int64_t first) {
        for (int64_t k = 0; k < d.count; ++k)
          to.data<T>()[first + k * d.step] = from.data<T>()[i * d.count + k];
      });
      return Ok();
    });
  });
}

}  // namespace

void add_tensor_diagonals(KernelRegistry& registry) {
  registry.add("trace", trace);
  registry.add("trace_grad", trace_grad);
  registry.add("diag_embed", diag_embed);
}

}  // namespace millrace::kernels
