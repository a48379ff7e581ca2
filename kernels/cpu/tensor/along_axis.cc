#include "kernels/cpu/tensor/along_axis.h"

#include <algorithm>

#include "kernels/cpu/int_list.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/tensor/index_add.h"
#include "kernels/cpu/tensor/tensor.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"

namespace millrace::kernels {
namespace {

// Calls fn(tag, view, ids, count) with the element type of x and the index checked against it.
template <typename Fn>
Status with_along(const Tensor& x, const Tensor& index, int64_t axis_attr, Fn&& fn) {
  MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, axis_of(axis_attr, x.rank()));
  const AxisView view(x.dims(), static_cast<size_t>(axis));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t count, count_along(x, index, static_cast<size_t>(axis)));
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
  const ArgIndex grad = op.input("Result@GRAD");
  const ArgIndex x_grad = op.output("Input@GRAD");
  const auto axis = op.attr<int64_t>("Axis");
  return Kernel([=](const KernelContext& ctx) -> Status {
    Tensor* const to = ctx.find_out(x_grad);
    if (to == nullptr) return Ok();
    fill_zero(ctx.device(), *to);
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const index, needed(ctx, index_arg, "Index"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, grad, "Result@GRAD"));
    if (from->numel() != index->numel() || from->dtype() != to->dtype())
      return ctx.error("Result@GRAD {} must have the shape of Index {}", describe(*from),
                       describe(*index));
    return with_along(*to, *index, axis,
                      [&](auto tag, const AxisView& view, const auto* ids, int64_t count) {
                        using T = typename decltype(tag)::type;
                        const T* const dy = from->data<T>();
                        T* const dx = to->data<T>();
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

// How many values meet at each element, as a mean needs; without the element itself the first
// value replaces it.
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

// Elements that were replaced have no gradient; those that were added to keep theirs.
StatusOr<Kernel> put_along_grad(const KernelSetup& op) {
  const ArgIndex index_arg = op.input("Index");
  const ArgIndex grad = op.input("Result@GRAD");
  const ArgIndex x_grad = op.output("Input@GRAD");
  const ArgIndex value_grad = op.output("Value@GRAD");
  const auto axis = op.attr<int64_t>("Axis");
  const Reduce reduce = reduce_of(op);
  if (reduce != Reduce::kAssign && reduce != Reduce::kAdd) {
    return Status(StatusCode::kUnimplemented,
                  "put_along_axis_grad is there for Reduce assign and add, found " +
                      op.attr<std::string>("Reduce"));
  }
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const index, needed(ctx, index_arg, "Index"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, grad, "Result@GRAD"));
    Tensor* const dx = ctx.find_out(x_grad);
    Tensor* const dv = ctx.find_out(value_grad);
    if (dx != nullptr && dx->bytes() != from->bytes())
      return ctx.error("Result@GRAD {} must have the shape of Input", describe(*from));
    if (dv != nullptr && (dv->numel() != index->numel() || dv->dtype() != from->dtype()))
      return ctx.error("Value must have an element for each of Index {}", describe(*index));
    return with_along(
        *from, *index, axis, [&](auto tag, const AxisView& view, const auto* ids, int64_t count) {
          using T = typename decltype(tag)::type;
          const T* const dy = from->data<T>();
          if (dv != nullptr) {
            each_along(view, ids, count,
                       [&](int64_t place, int64_t k) { dv->data<T>()[k] = dy[place]; });
          }
          if (dx == nullptr) return Ok();
          copy_bytes(ctx.device(), dx->raw(), from->raw(), from->bytes());
          if (reduce == Reduce::kAssign) {
            each_along(view, ids, count,
                       [&](int64_t place, int64_t /*k*/) { dx->data<T>()[place] = T{}; });
          }
          return Ok();
        });
  });
}

}  // namespace

void add_along_axis(KernelRegistry& registry) {
  registry.add("take_along_axis", take);
  registry.add("take_along_axis_grad", take_grad);
  registry.add("put_along_axis", put_along);
  registry.add("put_along_axis_grad", put_along_grad);
}

}  // namespace millrace::kernels
