#include <algorithm>
#include <cstring>

#include "kernels/cpu/index.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/tensor/index_add.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

// multiplex selects rows from several operands; partial_concat and partial_sum select columns.
namespace millrace::kernels {
namespace combine_kernels {
namespace {

size_t row_bytes(const Tensor& x) {
  return static_cast<size_t>(x.rank() == 0 || x.dims()[0] == 0 ? 0 : x.bytes() / x.dims()[0]);
}

StatusOr<Kernel> multiplex(const KernelSetup& op) {
  const ArgRange x = op.inputs("X");
  const ArgIndex ids_arg = op.input("Ids");
  const ArgIndex out_arg = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& ids_tensor = ctx.in(ids_arg);
    Tensor& out = ctx.out(out_arg);
    const size_t bytes = row_bytes(out);
    for (int32_t k = 0; k < x.count; ++k) {
      const Tensor& operand = ctx.in(x, k);
      if (operand.dims() != out.dims() || operand.dtype() != out.dtype())
        return ctx.error("X[{}] {} must have the type and shape of X[0] {}", k, describe(operand),
                         describe(out));
    }
    if (out.rank() == 0 || ids_tensor.numel() != out.dims()[0])
      return ctx.error("Ids {} must have a number for each row of X {}", describe(ids_tensor),
                       describe(out));
    return with_index(ids_tensor, "Ids", [&](const auto* ids) -> Status {
      const int64_t rows = out.dims()[0];
      MILLRACE_RETURN_IF_ERROR(check_range(ids, rows, x.count, "Ids"));
      for (int64_t i = 0; i < rows; ++i) {
        const size_t at = static_cast<size_t>(i) * bytes;
        std::memcpy(out.raw() + at, ctx.in(x, static_cast<int32_t>(ids[i])).raw() + at, bytes);
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> multiplex_grad(const KernelSetup& op) {
  const ArgIndex ids_arg = op.input("Ids");
  const ArgIndex grad_arg = op.input("Out@GRAD");
  const ArgRange x_grad = op.outputs("X@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const ids_tensor, needed(ctx, ids_arg, "Ids"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const grad, needed(ctx, grad_arg, "Out@GRAD"));
    const size_t bytes = row_bytes(*grad);
    if (grad->rank() == 0 || ids_tensor->numel() != grad->dims()[0])
      return ctx.error("Ids {} must have a number for each row of Out@GRAD {}",
                       describe(*ids_tensor), describe(*grad));
    for (int32_t k = 0; k < x_grad.count; ++k) {
      if (!ctx.has_out(x_grad, k)) continue;
      Tensor& to = ctx.out(x_grad, k);
      if (!to.initialized() || to.dtype() != grad->dtype() || to.dims() != grad->dims())
        MILLRACE_RETURN_IF_ERROR(to.resize(grad->dtype(), grad->dims()));
      fill_zero(ctx.device(), to);
    }
    return with_index(*ids_tensor, "Ids", [&](const auto* ids) -> Status {
      const int64_t rows = grad->dims()[0];
      MILLRACE_RETURN_IF_ERROR(check_range(ids, rows, x_grad.count, "Ids"));
      for (int64_t i = 0; i < rows; ++i) {
        const auto k = static_cast<int32_t>(ids[i]);
        const size_t at = static_cast<size_t>(i) * bytes;
        if (ctx.has_out(x_grad, k))
          std::memcpy(ctx.out(x_grad, k).raw() + at, grad->raw() + at, bytes);
      }
      return Ok();
    });
  });
}

// The columns selected from each operand.
struct CombineColumns {
  explicit CombineColumns(const KernelSetup& op)
      : start(op.attr<int64_t>("start_index")), length(op.attr<int64_t>("length")) {}

  struct Part {
    int64_t first;
    int64_t count;
  };
  StatusOr<Part> of(const KernelContext& ctx, const Tensor& x) const {
    if (x.rank() != 2) return ctx.error("X must hold matrices, found {}", describe(x));
    const int64_t columns = x.dims()[1];
    const int64_t first = start < 0 ? start + columns : start;
    const int64_t count = length < 0 ? columns - first : length;
    if (first < 0 || count < 0 || count > columns - first)
      return ctx.error("attributes 'start_index' ({}) and 'length' ({}) exceed the columns of X {}",
                       start, length, describe(x));
    return Part{first, count};
  }

  int64_t start;
  int64_t length;
};

// A box of all rows, `width` columns wide; each side has its own row stride.
StridedBox piece(int64_t rows, int64_t width, int64_t to_row, int64_t from_row) {
  StridedBox box;
  box.push(rows, to_row, from_row);
  box.push(width, 1, 1);
  return box;
}

Status check_rows(const KernelContext& ctx, const Tensor& x, const Tensor& out, int64_t width) {
  if (x.dtype() == out.dtype() && out.rank() == 2 && x.dims()[0] == out.dims()[0] &&
      width <= out.dims()[1])
    return Ok();
  return ctx.error("the columns of {} do not fit {}", describe(x), describe(out));
}

// The columns of x that belong to the result. Errors: `times` as many do not fit its columns.
StatusOr<CombineColumns::Part> fitting_columns(const KernelContext& ctx,
                                               const CombineColumns& columns, const Tensor& x,
                                               const Tensor& out, int64_t times) {
  MILLRACE_ASSIGN_OR_RETURN(const CombineColumns::Part part, columns.of(ctx, x));
  MILLRACE_RETURN_IF_ERROR(check_rows(ctx, x, out, part.count * times));
  return part;
}

Status join_columns(const KernelContext& ctx, ArgRange x, const CombineColumns& columns,
                    Tensor& out) {
  const int64_t size = dtype_size(out.dtype());
  for (int32_t k = 0; k < x.count; ++k) {
    const Tensor& from = ctx.in(x, k);
    MILLRACE_ASSIGN_OR_RETURN(const CombineColumns::Part part,
                              fitting_columns(ctx, columns, from, out, k + 1));
    copy_strided(ctx.device(), size,
                 piece(from.dims()[0], part.count, out.dims()[1], from.dims()[1]),
                 out.raw() + k * part.count * size, from.raw() + part.first * size);
  }
  return Ok();
}

Status sum_columns(const KernelContext& ctx, ArgRange x, const CombineColumns& columns,
                   Tensor& out) {
  fill_zero(ctx.device(), out);
  return dispatch<AddTypes>(out.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    for (int32_t k = 0; k < x.count; ++k) {
      const Tensor& from = ctx.in(x, k);
      MILLRACE_ASSIGN_OR_RETURN(const CombineColumns::Part part,
                                fitting_columns(ctx, columns, from, out, 1));
      for (int64_t r = 0; r < from.dims()[0]; ++r) {
        const T* const source = from.data<T>() + r * from.dims()[1] + part.first;
        T* const target = out.data<T>() + r * out.dims()[1];
        for (int64_t c = 0; c < part.count; ++c) target[c] = static_cast<T>(target[c] + source[c]);
      }
    }
    return Ok();
  });
}

// \param combine  join_columns or sum_columns
template <auto combine>
StatusOr<Kernel> partial(const KernelSetup& op) {
  return Kernel([x = op.inputs("X"), out = op.output("Out"),
                 columns = CombineColumns(op)](const KernelContext& ctx) -> Status {
    return combine(ctx, x, columns, ctx.out(out));
  });
}

// \param concat  operand k has its own columns of Out@GRAD; else all operands share the same ones
StatusOr<Kernel> make_partial_grad(const KernelSetup& op, bool concat) {
  const ArgIndex grad_arg = op.input("Out@GRAD");
  const ArgRange x_grad = op.outputs("X@GRAD");
  const CombineColumns columns(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const grad, needed(ctx, grad_arg, "Out@GRAD"));
    const int64_t size = dtype_size(grad->dtype());
    for (int32_t k = 0; k < x_grad.count; ++k) {
      if (!ctx.has_out(x_grad, k)) continue;
      Tensor& to = ctx.out(x_grad, k);
      fill_zero(ctx.device(), to);
      MILLRACE_ASSIGN_OR_RETURN(const CombineColumns::Part part, columns.of(ctx, to));
      const int64_t offset = concat ? k * part.count : 0;
      MILLRACE_RETURN_IF_ERROR(check_rows(ctx, to, *grad, offset + part.count));
      copy_strided(ctx.device(), size,
                   piece(to.dims()[0], part.count, to.dims()[1], grad->dims()[1]),
                   to.raw() + part.first * size, grad->raw() + offset * size);
    }
    return Ok();
  });
}

StatusOr<Kernel> partial_concat_grad(const KernelSetup& op) {
  return make_partial_grad(op, /*concat=*/true);
}
StatusOr<Kernel> partial_sum_grad(const KernelSetup& op) {
  return make_partial_grad(op, /*concat=*/false);
}

}  // namespace
}  // namespace combine_kernels

void add_tensor_combine(KernelRegistry& registry) {
  using namespace combine_kernels;
  registry.add("multiplex", multiplex);
  registry.add("multiplex_grad", multiplex_grad);
  registry.add("partial_concat", partial<join_columns>);
  registry.add("partial_concat_grad", partial_concat_grad);
  registry.add("partial_sum", partial<sum_columns>);
  registry.add("partial_sum_grad", partial_sum_grad);
}

}  // namespace millrace::kernels
