#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/tensor/axis_view.h"
#include "kernels/cpu/tensor/index_add.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace along_axis {
namespace {

// Calls fn(tag, view, ids, count) with the element type of x and the index checked against it.
template <typename Fn>
Status with_along(const Tensor& x, const Tensor& index, int64_t axis_attr, Fn&& fn) {
  MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, axis_of(axis_attr, x.rank()));
  AxisView view(x.dims(), static_cast<size_t>(axis));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t count, count_along(x, index, static_cast<size_t>(axis)));
  if (axis > 0)  // the index may be shorter than the tensor in the leading dims
    view.outer = ops::dims_product(index.dims().take_front(static_cast<size_t>(axis)));
  return with_index(index, "Index", [&](const auto* ids) -> Status {
    MILLRACE_RETURN_IF_ERROR(check_range(ids, index.numel(), view.size, "Index"));
    return dispatch<AddTypes>(x.dtype(),
                              [&](auto tag) -> Status { return fn(tag, view, ids, count); });
  });
}

StatusOr<Kernel> take(const KernelSetup& op) {
  const ArgIndex input = op.input("Input");
  const ArgIndex index_arg = op.input("Index");
  const ArgIndex out = op.output("Result");
  const auto axis = op.attr<int64_t>("Axis");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(input);
    Tensor& to = ctx.out(out);
    MILLRACE_ASSIGN_OR_RETURN(const std::byte* const bytes, bytes_apart(ctx.device(), x, to));
    return with_along(x, ctx.in(index_arg), axis,
                      [&](auto tag, const AxisView& view, const auto* ids, int64_t count) {
                        using T = typename decltype(tag)::type;
                        const T* const from = reinterpret_cast<const T*>(bytes);
                        T* const target = to.data<T>();
                        each_along(view, ids, count,
                                   [&](int64_t place, int64_t k) { target[k] = from[place]; });
                        return Ok();
                      });
  });
}

StatusOr<Kernel> take_grad(const KernelSetup& op) {
  const ArgIndex index_arg = op.input("Index");
  const GradientArgs gradient(op, "Input", "Result");
  const auto axis = op.attr<int64_t>("Axis");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GradientTensors g,
                              gradient.find_required(ctx, StartsAs::kZeros));
    if (!g) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const index, needed(ctx, index_arg, "Index"));
    if (g.from->numel() != index->numel() || g.from->dtype() != g.to->dtype())
      return ctx.error("Result@GRAD {} must have the shape of Index {}", describe(*g.from),
                       describe(*index));
    return with_along(*g.to, *index, axis,
                      [&](auto tag, const AxisView& view, const auto* ids, int64_t count) {
                        using T = typename decltype(tag)::type;
                        const T* const dy = g.from->data<T>();
                        T* const dx = g.to->data<T>();
                        each_along(view, ids, count, [&](int64_t place, int64_t k) {
                          dx[place] = static_cast<T>(dx[place] + dy[k]);
                        });
                        return Ok();
                      });
  });
}

enum class Reduce { kAssign, kAdd, kMultiply, kMean, kMin, kMax };

Reduce reduce_of(const KernelSetup& op) {
  const auto name = op.attr<std::string>("Reduce");
  if (name == "add") return Reduce::kAdd;
  if (name == "mul" || name == "multiply") return Reduce::kMultiply;
  if (name == "mean") return Reduce::kMean;
  if (name == "amin") return Reduce::kMin;
  if (name == "amax") return Reduce::kMax;
  return Reduce::kAssign;
}

template <typename T>
T combine(Reduce reduce, T old, T value) {
  switch (reduce) {
    case Reduce::kAssign:
      return value;
    case Reduce::kAdd:
    case Reduce::kMean:
      return static_cast<T>(old + value);
    case Reduce::kMultiply:
      return static_cast<T>(old * value);
    case Reduce::kMin:
      return value < old ? value : old;
    case Reduce::kMax:
      return old < value ? value : old;
  }
  return value;
}

// Counts how many values are combined at each element, which a mean needs. If the element itself is
// excluded, the first value replaces it.
template <typename T, typename I>
void put(const AxisView& view, const I* ids, int64_t count, const T* values, Reduce reduce,
         bool include_self, T* out, std::vector<int64_t>& met) {
  const bool counts = reduce == Reduce::kMean || !include_self;
  if (counts)
    met.assign(static_cast<size_t>(view.outer * view.size * view.inner), include_self ? 1 : 0);
  each_along(view, ids, count, [&](int64_t place, int64_t k) {
    int64_t before = 1;
    if (counts) before = met[static_cast<size_t>(place)]++;
    out[place] = before == 0 ? values[k] : combine(reduce, out[place], values[k]);
  });
  if (reduce != Reduce::kMean) return;
  for (size_t i = 0; i < met.size(); ++i) {
    if (met[i] > 1) out[i] = static_cast<T>(out[i] / static_cast<Compute<T>>(met[i]));
  }
}

StatusOr<Kernel> put_along(const KernelSetup& op) {
  const ArgIndex input = op.input("Input");
  const ArgIndex index_arg = op.input("Index");
  const ArgIndex value_arg = op.input("Value");
  const ArgIndex out = op.output("Result");
  const auto axis = op.attr<int64_t>("Axis");
  const Reduce reduce = reduce_of(op);
  const bool include_self = op.attr<bool>("Include_self");
  return Kernel([=, met = std::vector<int64_t>()](const KernelContext& ctx) mutable -> Status {
    const Tensor& x = ctx.in(input);
    const Tensor& index = ctx.in(index_arg);
    const Tensor& value = ctx.in(value_arg);
    Tensor& to = ctx.out(out);
    if (value.dtype() != x.dtype() || value.numel() != index.numel())
      return ctx.error("Value {} must have an element for each of Index {}", describe(value),
                       describe(index));
    copy_bytes(ctx.device(), to.raw(), x.raw(), x.bytes());
    return with_along(
        x, index, axis, [&](auto tag, const AxisView& view, const auto* ids, int64_t count) {
          using T = typename decltype(tag)::type;
          put(view, ids, count, value.data<T>(), reduce, include_self, to.data<T>(), met);
          return Ok();
        });
  });
}

// Operands of a gradient of put_along_axis. Result is read for products, minima and maxima only.
template <typename T>
struct PutArgs {
  const T* x;
  const T* value;
  const T* result;
  const T* dy;
  T* dx;  ///< may be null; the same for dv
  T* dv;
};

// The number of operands that share the gradient of each position. For a mean, all of its operands;
// for a minimum or maximum, the operands that equal it, always including the element itself.
template <typename T, typename I>
void count_sharers(const AxisView& view, const I* ids, int64_t count, Reduce reduce,
                   bool include_self, const PutArgs<T>& a, std::vector<int64_t>& sharers) {
  sharers.assign(static_cast<size_t>(view.outer * view.size * view.inner), 0);
  const auto add = [&](int64_t place, T operand) {
    sharers[static_cast<size_t>(place)] += reduce == Reduce::kMean || operand == a.result[place];
  };
  if (reduce != Reduce::kMean || include_self) {
    for (size_t i = 0; i < sharers.size(); ++i)
      add(static_cast<int64_t>(i), reduce == Reduce::kMean ? T{} : a.x[i]);
  }
  each_along(view, ids, count, [&](int64_t place, int64_t k) {
    add(place, reduce == Reduce::kMean ? T{} : a.value[k]);
  });
}

// The share of a position's gradient that one operand gets.
template <typename T>
T share(Reduce reduce, T operand, T result, T dy, int64_t sharers) {
  switch (reduce) {
    case Reduce::kMultiply:
      if (std::is_integral_v<T> && operand == T{}) return T{};
      return static_cast<T>(dy * result / operand);
    case Reduce::kMean:
      return static_cast<T>(dy / static_cast<Compute<T>>(sharers));
    case Reduce::kMin:
    case Reduce::kMax:
      return operand == result ? static_cast<T>(dy / static_cast<Compute<T>>(sharers)) : T{};
    default:
      return dy;
  }
}

// Replaced elements have no gradient. If several values are written to one position, only the last
// one has a gradient.
template <typename T, typename I>
void put_gradients(const AxisView& view, const I* ids, int64_t count, Reduce reduce,
                   bool include_self, const PutArgs<T>& a, std::vector<int64_t>& seen) {
  const bool shared = reduce == Reduce::kMean || reduce == Reduce::kMin || reduce == Reduce::kMax;
  const bool looks = a.result != nullptr;
  if (shared) count_sharers(view, ids, count, reduce, include_self, a, seen);
  if (reduce == Reduce::kAssign) {
    seen.assign(static_cast<size_t>(view.outer * view.size * view.inner), 0);
    each_along(view, ids, count,
               [&](int64_t place, int64_t k) { seen[static_cast<size_t>(place)] = k; });
  }
  const bool keeps = include_self && reduce != Reduce::kAssign;
  each_along(view, ids, count, [&](int64_t place, int64_t k) {
    const int64_t known = seen.empty() ? 0 : seen[static_cast<size_t>(place)];
    const T result = looks ? a.result[place] : T{};
    const bool lost = reduce == Reduce::kAssign && known != k;
    if (a.dv != nullptr)
      a.dv[k] = lost ? T{} : share(reduce, looks ? a.value[k] : T{}, result, a.dy[place], known);
    if (a.dx != nullptr)
      a.dx[place] =
          keeps ? share(reduce, looks ? a.x[place] : T{}, result, a.dy[place], known) : T{};
  });
}

struct PutGradSlots {
  ArgIndex x, index, value, result, grad, dx, dv;
};

// Checks the inputs of a gradient. Products, minima and maxima need all operands.
template <typename T>
StatusOr<PutArgs<T>> put_args(const KernelContext& ctx, const PutGradSlots& slots, Reduce reduce,
                              const Tensor& index, const Tensor& from) {
  PutArgs<T> args{nullptr, nullptr, nullptr, from.data<T>(), nullptr, nullptr};
  if (reduce != Reduce::kAssign && reduce != Reduce::kAdd && reduce != Reduce::kMean) {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, slots.x, "Input"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const result, needed(ctx, slots.result, "Result"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const value, needed(ctx, slots.value, "Value"));
    if (x->dims() != from.dims() || result->dims() != from.dims() || x->dtype() != from.dtype() ||
        result->dtype() != from.dtype() || value->numel() != index.numel() ||
        value->dtype() != from.dtype())
      return ctx.error("Input {}, Result {} and Value {} must be as Result@GRAD {} and Index {}",
                       describe(*x), describe(*result), describe(*value), describe(from),
                       describe(index));
    args.x = x->data<T>();
    args.result = result->data<T>();
    args.value = value->data<T>();
  }
  Tensor* const dx = ctx.find_out(slots.dx);
  Tensor* const dv = ctx.find_out(slots.dv);
  if (dx != nullptr && (dx->dims() != from.dims() || dx->dtype() != from.dtype()))
    return ctx.error("Result@GRAD {} must be as Input {}", describe(from), describe(*dx));
  if (dv != nullptr && (dv->numel() != index.numel() || dv->dtype() != from.dtype()))
    return ctx.error("Value must have an element for each of Index {}", describe(index));
  if (dx != nullptr) copy_bytes(ctx.device(), dx->raw(), from.raw(), from.bytes());
  args.dx = dx == nullptr ? nullptr : dx->data<T>();
  args.dv = dv == nullptr ? nullptr : dv->data<T>();
  return args;
}

StatusOr<Kernel> put_along_grad(const KernelSetup& op) {
  const PutGradSlots slots{op.input("Input"),      op.input("Index"),       op.input("Value"),
                           op.input("Result"),     op.input("Result@GRAD"), op.output("Input@GRAD"),
                           op.output("Value@GRAD")};
  const auto axis = op.attr<int64_t>("Axis");
  const Reduce reduce = reduce_of(op);
  const bool include_self = op.attr<bool>("Include_self");
  return Kernel([=, seen = std::vector<int64_t>()](const KernelContext& ctx) mutable -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const index, needed(ctx, slots.index, "Index"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, slots.grad, "Result@GRAD"));
    return with_along(
        *from, *index, axis,
        [&](auto tag, const AxisView& view, const auto* ids, int64_t count) -> Status {
          using T = typename decltype(tag)::type;
          MILLRACE_ASSIGN_OR_RETURN(const PutArgs<T> args,
                                    put_args<T>(ctx, slots, reduce, *index, *from));
          put_gradients(view, ids, count, reduce, include_self, args, seen);
          return Ok();
        });
  });
}

}  // namespace
}  // namespace along_axis

void add_tensor_along_axis(KernelRegistry& registry) {
  using namespace along_axis;
  registry.add("take_along_axis", take);
  registry.add("take_along_axis_grad", take_grad);
  registry.add("put_along_axis", put_along);
  registry.add("put_along_axis_grad", put_along_grad);
}

}  // namespace millrace::kernels
