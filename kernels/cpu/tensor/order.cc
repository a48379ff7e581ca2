#include <algorithm>
#include <cmath>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/tensor/axis_view.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

// argsort, top_k, kthvalue: the order of the elements along an axis. Equal elements keep their
// order; NaN counts as the largest number.
namespace millrace::kernels {
namespace order {
namespace {

template <typename C>
struct Item {
  C value;
  int64_t index;
};

template <typename C>
bool is_nan(C value) {
  if constexpr (std::is_floating_point_v<C>) return std::isnan(value);
  return false;
}

template <typename C>
bool ascending(const Item<C>& a, const Item<C>& b) {
  const bool nan_a = is_nan(a.value);
  const bool nan_b = is_nan(b.value);
  if (nan_a || nan_b) return nan_a != nan_b ? nan_b : a.index < b.index;
  return a.value != b.value ? a.value < b.value : a.index < b.index;
}
template <typename C>
bool descending(const Item<C>& a, const Item<C>& b) {
  const bool nan_a = is_nan(a.value);
  const bool nan_b = is_nan(b.value);
  if (nan_a || nan_b) return nan_a != nan_b ? nan_a : a.index < b.index;
  return a.value != b.value ? a.value > b.value : a.index < b.index;
}

struct OrderArgs {
  ArgIndex x;
  ArgIndex out;
  ArgIndex indices;
  ArgIndex k_tensor;
  int64_t axis = -1;
  int64_t k = 0;  // 0: all
  bool largest = false;
  bool only_last = false;  // kthvalue: only the k-th
};

// Elements [first, k) of the sorted order of every row.
template <typename T>
void order_rows(const AxisView& view, int64_t first, int64_t k, bool largest, const T* x, T* out,
                int64_t* indices, CpuDevice& device) {
  using C = Compute<T>;
  const int64_t kept = k - first;
  const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, view.size));
  device.parallel_for(view.outer * view.inner, grain, [&](int64_t begin, int64_t end) {
    std::vector<Item<C>> row(static_cast<size_t>(view.size));
    for (int64_t r = begin; r < end; ++r) {
      const int64_t o = r / view.inner;
      const int64_t i = r % view.inner;
      const T* const from = x + o * view.size * view.inner + i;
      for (int64_t j = 0; j < view.size; ++j)
        row[static_cast<size_t>(j)] = {static_cast<C>(from[j * view.inner]), j};
      const auto compare = largest ? descending<C> : ascending<C>;
      if (k == view.size) {
        std::sort(row.begin(), row.end(), compare);
      } else {
        std::partial_sort(row.begin(), row.begin() + k, row.end(), compare);
      }
      for (int64_t j = 0; j < kept; ++j) {
        const Item<C>& item = row[static_cast<size_t>(first + j)];
        const int64_t place = (o * kept + j) * view.inner + i;
        out[place] = static_cast<T>(item.value);
        indices[place] = item.index;
      }
    }
  });
}

Status run(const KernelContext& ctx, const OrderArgs& args) {
  const Tensor& x = ctx.in(args.x);
  MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, axis_of(args.axis, x.rank()));
  const AxisView view(x.dims(), static_cast<size_t>(axis));
  int64_t k = args.k == 0 ? view.size : args.k;
  if (args.k_tensor) {
    MILLRACE_ASSIGN_OR_RETURN(k, one_int(ctx.in(args.k_tensor), "K"));
  }
  if (k < 0 || k > view.size || (k == 0 && args.k != 0))
    return ctx.error("k is {}, expected a number from 1 to {} for dim {} of X {}", k, view.size,
                     axis, describe(x));
  Dims dims(x.dims().begin(), x.dims().end());
  Tensor& out = ctx.out(args.out);
  Tensor& indices = ctx.out(args.indices);
  if (!dims.empty() && !args.only_last) {
    dims[static_cast<size_t>(axis)] = k;
    MILLRACE_RETURN_IF_ERROR(size_output(out, x.dtype(), dims));
    MILLRACE_RETURN_IF_ERROR(size_output(indices, DType::kInt64, dims));
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::byte* const bytes, bytes_apart(ctx.device(), x, out));
  return dispatch<AllNumberTypes>(x.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    order_rows(view, args.only_last ? k - 1 : 0, k, args.largest, reinterpret_cast<const T*>(bytes),
               out.data<T>(), indices.data<int64_t>(), ctx.device());
    return Ok();
  });
}

OrderArgs common_args(const KernelSetup& op) {
  OrderArgs args;
  args.x = op.input("X");
  args.out = op.output("Out");
  args.indices = op.output("Indices");
  args.k_tensor = op.input("K");
  return args;
}

StatusOr<Kernel> make(const OrderArgs& args) {
  return Kernel([args](const KernelContext& ctx) -> Status { return run(ctx, args); });
}

StatusOr<Kernel> argsort(const KernelSetup& op) {
  OrderArgs args = common_args(op);
  args.axis = op.attr<int64_t>("axis");
  args.largest = op.attr<bool>("descending");
  return make(args);
}

StatusOr<Kernel> top_k(const KernelSetup& op) {
  OrderArgs args = common_args(op);
  args.k = op.attr<int64_t>("k");
  args.largest = true;
  return make(args);
}

StatusOr<Kernel> top_k_v2(const KernelSetup& op) {
  OrderArgs args = common_args(op);
  args.k = op.attr<int64_t>("k");
  args.axis = op.attr<int64_t>("axis");
  args.largest = op.attr<bool>("largest");
  return make(args);
}

StatusOr<Kernel> kthvalue(const KernelSetup& op) {
  OrderArgs args = common_args(op);
  args.k = op.attr<int64_t>("k");
  args.axis = op.attr<int64_t>("axis");
  args.only_last = true;
  return make(args);
}

// The gradient goes to the positions in Indices.
StatusOr<Kernel> make_grad(const KernelSetup& op, int64_t axis_attr) {
  const ArgIndex indices_arg = op.input("Indices");
  const GradientArgs gradient(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const GradientTensors g = gradient.find(ctx, StartsAs::kZeros);
    if (!g) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const indices, needed(ctx, indices_arg, "Indices"));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, axis_of(axis_attr, g.to->rank()));
    const AxisView view(g.to->dims(), static_cast<size_t>(axis));
    const int64_t rows = view.outer * view.inner;
    const int64_t count = rows == 0 ? 0 : g.from->numel() / rows;
    if (g.from->numel() != indices->numel() || count * rows != g.from->numel() ||
        g.from->dtype() != g.to->dtype())
      return ctx.error("Out@GRAD {} and Indices {} do not fit X {}", describe(*g.from),
                       describe(*indices), describe(*g.to));
    return with_index(*indices, "Indices", [&](const auto* ids) -> Status {
      MILLRACE_RETURN_IF_ERROR(check_range(ids, indices->numel(), view.size, "Indices"));
      return dispatch<AllNumberTypes>(g.to->dtype(), [&](auto tag) -> Status {
        using T = typename decltype(tag)::type;
        const T* const dy = g.from->data<T>();
        T* const dx = g.to->data<T>();
        each_along(view, ids, count, [&](int64_t place, int64_t k) { dx[place] = dy[k]; });
        return Ok();
      });
    });
  });
}

StatusOr<Kernel> last_axis_grad(const KernelSetup& op) {
  return make_grad(op, -1);
}
StatusOr<Kernel> axis_grad(const KernelSetup& op) {
  return make_grad(op, op.attr<int64_t>("axis"));
}

}  // namespace
}  // namespace order

void add_tensor_order(KernelRegistry& registry) {
  using namespace order;
  registry.add("argsort", argsort);
  registry.add("argsort_grad", axis_grad);
  registry.add("top_k", top_k);
  registry.add("top_k_grad", last_axis_grad);
  registry.add("top_k_v2", top_k_v2);
  registry.add("top_k_v2_grad", axis_grad);
  registry.add("kthvalue", kthvalue);
  registry.add("kthvalue_grad", axis_grad);
}

}  // namespace millrace::kernels
