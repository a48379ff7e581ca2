#include <algorithm>
#include <cstring>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/index.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/tensor/index_add.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

// gather, index_select, gather_nd: slices of a tensor by index. All of them select rows of equal
// length; their gradients add the rows to the positions they came from.
namespace millrace::kernels {
namespace {

// A tensor viewed around an axis: [outer, size, inner].
struct Around {
  int64_t outer;
  int64_t size;
  int64_t inner;

  Around(llvm::ArrayRef<int64_t> dims, size_t axis)
      : outer(ops::dims_product(dims.take_front(axis))),
        size(dims[axis]),
        inner(ops::dims_product(dims.drop_front(axis + 1))) {}
};

// Copies rows of row_bytes bytes, on several threads if there are many.
template <typename I>
void pick_rows(CpuDevice& device, const Around& a, int64_t element_bytes, const I* index,
               int64_t count, const std::byte* from, std::byte* to) {
  const auto row = static_cast<size_t>(a.inner * element_bytes);
  const int64_t grain =
      std::max<int64_t>(1, 131072 / std::max<int64_t>(1, a.inner * element_bytes));
  device.parallel_for(a.outer * count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t outer = i / count;
      const auto at = static_cast<int64_t>(index[i - outer * count]);
      std::memcpy(to + static_cast<size_t>(i) * row,
                  from + static_cast<size_t>(outer * a.size + at) * row, row);
    }
  });
}

// Arguments of an op with an axis and an index.
struct PickArgs {
  PickArgs(const KernelSetup& op, llvm::StringRef axis_attr)
      : x(op.input("X")), index(op.input("Index")), axis(op, axis_attr, "Axis") {}
  ArgIndex x;
  ArgIndex index;
  AxisArg axis;
};

StatusOr<Kernel> make_pick(const KernelSetup& op, llvm::StringRef axis_attr) {
  const PickArgs args(op, axis_attr);
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(args.x);
    const Tensor& index = ctx.in(args.index);
    Tensor& to = ctx.out(out);
    if (x.rank() == 0) return ctx.error("X must have at least one dim");
    MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, args.axis.read(ctx, x.rank()));
    const auto at = static_cast<size_t>(axis);
    if (args.axis.dynamic()) {
      Dims dims(x.dims().begin(), x.dims().end());
      dims[at] = index.numel();
      if (index.rank() == 0) dims.erase(dims.begin() + axis);
      MILLRACE_RETURN_IF_ERROR(size_output(to, x.dtype(), dims));
    }
    const Around around(x.dims(), at);
    MILLRACE_ASSIGN_OR_RETURN(const std::byte* const from, bytes_apart(ctx.device(), x, to));
    return with_index(index, "Index", [&](const auto* ids) -> Status {
      MILLRACE_RETURN_IF_ERROR(check_range(ids, index.numel(), around.size, "Index"));
      pick_rows(ctx.device(), around, dtype_size(x.dtype()), ids, index.numel(), from, to.raw());
      return Ok();
    });
  });
}

StatusOr<Kernel> make_pick_grad(const KernelSetup& op, llvm::StringRef axis_attr) {
  const PickArgs args(op, axis_attr);
  const GradientArgs gradient(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const GradientTensors g = gradient.find(ctx, StartsAs::kZeros);
    if (!g) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const index, needed(ctx, args.index, "Index"));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, args.axis.read(ctx, g.to->rank()));
    const Around around(g.to->dims(), static_cast<size_t>(axis));
    const int64_t count = index->numel();
    if (g.from->numel() != around.outer * count * around.inner || g.from->dtype() != g.to->dtype())
      return ctx.error("Out@GRAD {} does not fit X {} and Index {}", describe(*g.from),
                       describe(*g.to), describe(*index));
    return with_index(*index, "Index", [&](const auto* ids) -> Status {
      MILLRACE_RETURN_IF_ERROR(check_range(ids, count, around.size, "Index"));
      return dispatch<AddTypes>(g.to->dtype(), [&](auto tag) -> Status {
        using T = typename decltype(tag)::type;
        for (int64_t o = 0; o < around.outer; ++o)
          add_rows(g.to->data<T>() + o * around.size * around.inner,
                   g.from->data<T>() + o * count * around.inner, ids, count, around.inner);
        return Ok();
      });
    });
  });
}

StatusOr<Kernel> gather_kernel(const KernelSetup& op) {
  return make_pick(op, "axis");
}
StatusOr<Kernel> gather_grad(const KernelSetup& op) {
  return make_pick_grad(op, "axis");
}
StatusOr<Kernel> index_select(const KernelSetup& op) {
  return make_pick(op, "dim");
}
StatusOr<Kernel> index_select_grad(const KernelSetup& op) {
  return make_pick_grad(op, "dim");
}

StatusOr<Kernel> gather_nd(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex index = op.input("Index");
  const ArgIndex out = op.output("Out");
  return Kernel([=, rows = std::vector<int64_t>()](const KernelContext& ctx) mutable -> Status {
    const Tensor& from = ctx.in(x);
    Tensor& to = ctx.out(out);
    MILLRACE_ASSIGN_OR_RETURN(const int64_t row,
                              flat_rows(ctx.in(index), from.dims(), "Index", rows));
    const auto bytes = static_cast<size_t>(row * dtype_size(from.dtype()));
    for (size_t i = 0; i < rows.size(); ++i)
      std::memcpy(to.raw() + i * bytes, from.raw() + static_cast<size_t>(rows[i]) * bytes, bytes);
    return Ok();
  });
}

StatusOr<Kernel> gather_nd_grad(const KernelSetup& op) {
  const ArgIndex index = op.input("Index");
  const GradientArgs gradient(op);
  return Kernel([=, rows = std::vector<int64_t>()](const KernelContext& ctx) mutable -> Status {
    const GradientTensors g = gradient.find(ctx, StartsAs::kZeros);
    if (!g) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const ids, needed(ctx, index, "Index"));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t row, flat_rows(*ids, g.to->dims(), "Index", rows));
    const auto count = static_cast<int64_t>(rows.size());
    if (g.from->numel() != count * row || g.from->dtype() != g.to->dtype())
      return ctx.error("Out@GRAD {} does not fit X {} and Index {}", describe(*g.from),
                       describe(*g.to), describe(*ids));
    return dispatch<AddTypes>(g.to->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      add_rows(g.to->data<T>(), g.from->data<T>(), rows.data(), count, row);
      return Ok();
    });
  });
}

}  // namespace

void add_tensor_gather(KernelRegistry& registry) {
  registry.add("gather", gather_kernel);
  registry.add("gather_grad", gather_grad);
  registry.add("index_select", index_select);
  registry.add("index_select_grad", index_select_grad);
  registry.add("gather_nd", gather_nd);
  registry.add("gather_nd_grad", gather_nd_grad);
}

}  // namespace millrace::kernels
