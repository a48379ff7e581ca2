#include "kernels/cpu/int_list.h"
#include "kernels/cpu/tensor/axis_view.h"
#include "kernels/gpu/ops/element_types.h"
#include "kernels/gpu/ops/host_call.h"
#include "kernels/gpu/ops/lines.h"
#include "kernels/registry.h"

// arg_max, argsort, top_k, kthvalue and gradients: ties and NaN as on the processor.
namespace millrace::gpu {
namespace {

using kernels::AxisView;

StatusOr<Elements> numbers_of(const Tensor& x) {
  if (x.dtype() == DType::kBool) return refuse("X {}", describe(x));
  return elements_of(x);
}

// Errors: rejects an axis that is not there.
StatusOr<AxisView> axis_view(const Tensor& x, int64_t axis) {
  StatusOr<int64_t> at = kernels::axis_of(axis, x.rank());
  if (!at.ok()) return refuse("{}", at.status().message());
  return AxisView(x.dims(), static_cast<size_t>(*at));
}

template <bool kLargest>
StatusOr<Kernel> find_extreme(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.input("X"), out = op.output("Out"),
                 axis = op.attr<int64_t>("axis"),
                 flatten = op.attr<bool>("flatten")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Elements elements, numbers_of(*from));
    const int64_t all[] = {from->numel()};
    AxisView view(all, 0);
    if (!flatten) {
      MILLRACE_ASSIGN_OR_RETURN(view, axis_view(*from, axis));
    }
    Tensor& to = ctx.out(out);
    const bool wide = to.dtype() == DType::kInt64;
    const int64_t count = view.outer * view.inner;
    if (view.size == 0 || to.numel() != count || (!wide && to.dtype() != DType::kInt32) ||
        to.raw() == from->raw())
      return refuse("{} becomes {}", describe(*from), describe(to));
    const FindExtreme find{elements, to.raw(), wide, kLargest, view.size, view.inner};
    return view.inner > 1 ? lanes(device, find, count) : rows(device, find, count);
  });
}

// Attributes of an op that orders rows.
struct OrderSettings {
  int64_t axis = -1;
  int64_t k = 0;  // 0: all
  bool largest = false;
  bool only_last = false;  // the result is the k-th
};

Status launch_sorted(Device& device, const OrderedRows& ordered, const AxisView& view) {
  constexpr int64_t kFew = 32;              // positions that are looked for one by one
  constexpr int64_t kMostCompared = 32768;  // elements of a row of which all pairs are compared
  const int64_t count = view.outer * view.inner;
  if (ordered.first + ordered.kept <= kFew && view.size > 64)
    return view.inner > 1 ? lanes(device, FindInOrder{ordered}, count)
                          : rows(device, FindInOrder{ordered}, count);
  if (view.size > kMostCompared)
    return refuse("the GPU kernel sorts rows of up to {} elements, found {}", kMostCompared,
                  view.size);
  return each(device, PlaceInOrder{ordered}, count * view.size);
}

StatusOr<Kernel> sorting(const KernelSetup& op, const OrderSettings& settings) {
  return Kernel([&memory = memory_of(op), settings, x = op.input("X"), out = op.output("Out"),
                 indices = op.output("Indices"),
                 k_tensor = op.input("K")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Elements elements, numbers_of(*from));
    MILLRACE_ASSIGN_OR_RETURN(const AxisView view, axis_view(*from, settings.axis));
    int64_t k = settings.k == 0 ? view.size : settings.k;
    if (k_tensor) {
      MILLRACE_ASSIGN_OR_RETURN(const Tensor* const given, needed_here(ctx, k_tensor, "K"));
      std::vector<int64_t> numbers;
      MILLRACE_RETURN_IF_ERROR(read_ids(memory, *given, numbers));
      if (numbers.size() != 1) return refuse("K {}", describe(*given));
      k = numbers[0];
    }
    if (k < 1 || k > view.size || from->numel() == 0)
      return refuse("k is {} of {}", k, describe(*from));
    const int64_t first = settings.only_last ? k - 1 : 0;
    Tensor& to = ctx.out(out);
    Tensor& to_indices = ctx.out(indices);
    if (from->rank() > 0 && !settings.only_last) {
      Dims dims(from->dims().begin(), from->dims().end());
      MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, kernels::axis_of(settings.axis, dims.size()));
      dims[static_cast<size_t>(axis)] = k;
      MILLRACE_RETURN_IF_ERROR(size_here(memory, to, from->dtype(), dims));
      MILLRACE_RETURN_IF_ERROR(size_here(memory, to_indices, DType::kInt64, dims));
    }
    const int64_t count = view.outer * view.inner * (k - first);
    if (to.numel() != count || to_indices.numel() != count || to.dtype() != from->dtype() ||
        to_indices.dtype() != DType::kInt64 || to.raw() == from->raw())
      return refuse("{} becomes {}", describe(*from), describe(to));
    return launch_sorted(memory.device(),
                         {elements, to.raw(), reinterpret_cast<int64_t*>(to_indices.raw()),
                          view.size, view.inner, first, k - first, settings.largest},
                         view);
  });
}

StatusOr<Kernel> gpu_argsort(const KernelSetup& op) {
  return sorting(op, {op.attr<int64_t>("axis"), 0, op.attr<bool>("descending"), false});
}
StatusOr<Kernel> gpu_top_k(const KernelSetup& op) {
  return sorting(op, {-1, op.attr<int64_t>("k"), true, false});
}
StatusOr<Kernel> gpu_top_k_v2(const KernelSetup& op) {
  return sorting(
      op, {op.attr<int64_t>("axis"), op.attr<int64_t>("k"), op.attr<bool>("largest"), false});
}
StatusOr<Kernel> gpu_kthvalue(const KernelSetup& op) {
  return sorting(op, {op.attr<int64_t>("axis"), op.attr<int64_t>("k"), false, true});
}

// The gradient goes to the positions in Indices, which differ within a row.
StatusOr<Kernel> grad_along(const KernelSetup& op, int64_t axis) {
  return index_gradient(
      op, {"Indices", "Out@GRAD", "X@GRAD"},
      [&device = device_of(op), axis](const KernelContext& /*ctx*/, const Tensor& at,
                                      const Tensor& d, Tensor& to) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const AxisView view, axis_view(to, axis));
        const int64_t count = view.outer * view.inner;
        if (count == 0 || d.numel() != at.numel() || d.numel() % count != 0 ||
            dtype_size(d.dtype()) > 8 ||
            (at.dtype() != DType::kInt64 && at.dtype() != DType::kInt32))
          return refuse("Out@GRAD {}", describe(d));
        const int64_t kept = d.numel() / count;
        Box<2> box;
        box.push(view.outer, {view.size * view.inner, kept * view.inner});
        box.push(kept, {0, view.inner});
        box.push(view.inner, {1, 1});
        MILLRACE_RETURN_IF_ERROR(box.walk().status());
        MILLRACE_RETURN_IF_ERROR(clear_elements(device, to));
        return take_elements(device, box, {&at, {view.inner}, view.size}, d, to, /*puts=*/true);
      });
}
StatusOr<Kernel> gpu_last_axis_grad(const KernelSetup& op) {
  return grad_along(op, -1);
}
StatusOr<Kernel> gpu_axis_grad(const KernelSetup& op) {
  return grad_along(op, op.attr<int64_t>("axis"));
}

}  // namespace

void add_order(KernelRegistry& registry) {
  registry.add("arg_max", find_extreme<true>);
  registry.add("arg_min", find_extreme<false>);
  registry.add("argsort", gpu_argsort);
  registry.add("top_k", gpu_top_k);
  registry.add("top_k_v2", gpu_top_k_v2);
  registry.add("kthvalue", gpu_kthvalue);
  registry.add("top_k_grad", gpu_last_axis_grad);
  for (const char* const type : {"argsort_grad", "top_k_v2_grad", "kthvalue_grad"})
    registry.add(type, gpu_axis_grad);
}

}  // namespace millrace::gpu
