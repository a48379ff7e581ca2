#include <algorithm>
#include <optional>

#include "kernels/cpu/int_list.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/tensor/cut.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

using Cuts = llvm::SmallVector<Cut, 6>;

// The bounds of slice and strided_slice, from attributes or tensors.
struct SliceBounds {
  explicit SliceBounds(const KernelSetup& op)
      : axes(op.attr<std::vector<int64_t>>("axes")),
        decrease(op.attr<std::vector<int64_t>>("decrease_axis")),
        starts(op, "starts", "StartsTensor", "StartsTensorList"),
        ends(op, "ends", "EndsTensor", "EndsTensorList") {
    const bool strided = op.def().find_attr("strides") != nullptr;
    if (strided) strides.emplace(op, "strides", "StridesTensor", "StridesTensorList");
    dynamic = starts.dynamic() || ends.dynamic() || (strides && strides->dynamic());
    // inference leaves such dims open, even though the attributes have the bounds
    const auto flags = op.attr<std::vector<int64_t>>("infer_flags");
    dynamic |= std::any_of(flags.begin(), flags.end(), [](int64_t flag) { return flag < 0; });
  }

  StatusOr<Cuts> read(const KernelContext& ctx, llvm::ArrayRef<int64_t> dims) const {
    MILLRACE_ASSIGN_OR_RETURN(const Ints from, starts.read(ctx));
    MILLRACE_ASSIGN_OR_RETURN(const Ints to, ends.read(ctx));
    Ints step;
    if (strides) {
      MILLRACE_ASSIGN_OR_RETURN(step, strides->read(ctx));
    }
    if (from.size() != axes.size() || to.size() != axes.size() ||
        (!step.empty() && step.size() != axes.size())) {
      return ctx.error("there are {} axes, but {} starts, {} ends and {} strides", axes.size(),
                       from.size(), to.size(), step.size());
    }
    Cuts cuts;
    for (const int64_t dim : dims) cuts.push_back({0, dim, 1});
    for (size_t i = 0; i < axes.size(); ++i) {
      MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, axis_of(axes[i], dims.size()));
      if (dims.empty()) return ctx.error("Input must have at least one dim");
      const auto at = static_cast<size_t>(axis);
      const int64_t stride = step.empty() ? 1 : step[i];
      if (stride == 0) return ctx.error("the stride of dim {} is 0", axis);
      cuts[at] = cut_dim(dims[at], from[i], to[i], stride);
    }
    return cuts;
  }

  // Dims of the result, without those of decrease_axis.
  StatusOr<Dims> result_dims(const KernelContext& ctx, const Cuts& cuts) const {
    std::vector<bool> gone(cuts.size() + 1, false);
    for (const int64_t dropped : decrease) {
      MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, axis_of(dropped, cuts.size()));
      gone[static_cast<size_t>(axis)] = true;
    }
    Dims dims;
    for (size_t i = 0; i < cuts.size(); ++i) {
      if (!gone[i]) {
        dims.push_back(cuts[i].count);
      } else if (cuts[i].count != 1) {
        return ctx.error("attribute 'decrease_axis' drops dim {}, whose slice has {} elements", i,
                         cuts[i].count);
      }
    }
    if (strides && dims.empty()) dims = {1};
    return dims;
  }

  std::vector<int64_t> axes;
  std::vector<int64_t> decrease;
  IntList starts;
  IntList ends;
  std::optional<IntList> strides;
  bool dynamic = false;
};

Status slice_array(const KernelContext& ctx, const SliceBounds& bounds, const TensorArray& array,
                   Value& out) {
  const auto size = static_cast<int64_t>(array.size());
  MILLRACE_ASSIGN_OR_RETURN(const Cuts cuts, bounds.read(ctx, {size}));
  const Cut cut = cuts[0];
  if (!bounds.decrease.empty()) {
    if (cut.count != 1)
      return ctx.error("the slice of the array has {} elements, expected one", cut.count);
    return out.as<Tensor>().copy_from(array[static_cast<size_t>(cut.first)]);
  }
  TensorArray result(static_cast<size_t>(cut.count));
  for (int64_t i = 0; i < cut.count; ++i) {
    MILLRACE_RETURN_IF_ERROR(result[static_cast<size_t>(i)].copy_from(
        array[static_cast<size_t>(cut.first + i * cut.stride)]));
  }
  out.as<TensorArray>() = std::move(result);
  return Ok();
}

StatusOr<Kernel> slice(const KernelSetup& op) {
  const ArgIndex input = op.input("Input");
  const ArgIndex out = op.output("Out");
  const SliceBounds bounds(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (const auto* const array = ctx.in_value(input).get_if<TensorArray>())
      return slice_array(ctx, bounds, *array, ctx.out_value(out));
    if (ctx.find_in(input) == nullptr) return ctx.error("input Input holds no tensor");
    const Tensor& from = ctx.in(input);
    MILLRACE_ASSIGN_OR_RETURN(const Cuts cuts, bounds.read(ctx, from.dims()));
    Tensor& to = ctx.out(out);
    if (bounds.dynamic) {
      MILLRACE_ASSIGN_OR_RETURN(const Dims dims, bounds.result_dims(ctx, cuts));
      MILLRACE_RETURN_IF_ERROR(size_output(to, from.dtype(), dims));
    }
    MILLRACE_ASSIGN_OR_RETURN(const std::byte* const bytes, bytes_apart(ctx.device(), from, to));
    const CutBox cut(from.dims(), cuts);
    const int64_t size = dtype_size(from.dtype());
    copy_strided(ctx.device(), size, cut.box, to.raw(), bytes + cut.offset * size);
    return Ok();
  });
}

// Gradients of the selected elements of an array are stored at their positions; the others are
// zero.
Status slice_array_grad(const KernelContext& ctx, const SliceBounds& bounds,
                        const TensorArray& array, const Value* grad, Value& out) {
  MILLRACE_ASSIGN_OR_RETURN(const Cuts cuts,
                            bounds.read(ctx, {static_cast<int64_t>(array.size())}));
  TensorArray result(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    MILLRACE_RETURN_IF_ERROR(result[i].resize(array[i].dtype(), array[i].dims()));
    fill_zero(ctx.device(), result[i]);
  }
  for (int64_t i = 0; grad != nullptr && i < cuts[0].count; ++i) {
    Tensor& to = result[static_cast<size_t>(cuts[0].first + i * cuts[0].stride)];
    if (const auto* const tensor = grad->get_if<Tensor>()) {
      MILLRACE_RETURN_IF_ERROR(to.copy_from(*tensor));
    } else if (const auto* const parts = grad->get_if<TensorArray>();
               parts != nullptr && static_cast<size_t>(i) < parts->size() &&
               (*parts)[static_cast<size_t>(i)].initialized()) {
      MILLRACE_RETURN_IF_ERROR(to.copy_from((*parts)[static_cast<size_t>(i)]));
    }
  }
  out.as<TensorArray>() = std::move(result);
  return Ok();
}

StatusOr<Kernel> slice_grad(const KernelSetup& op) {
  const ArgIndex input = op.input("Input");
  const ArgIndex grad = op.input("Out@GRAD");
  const ArgIndex input_grad = op.output("Input@GRAD");
  const SliceBounds bounds(op);
  if (!input) return op.error("Input is missing, which determines the shape of the gradient");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!input_grad) return Ok();
    if (const auto* const array = ctx.in_value(input).get_if<TensorArray>()) {
      return slice_array_grad(ctx, bounds, *array, grad ? &ctx.in_value(grad) : nullptr,
                              ctx.out_value(input_grad));
    }
    Tensor& to = ctx.out(input_grad);
    const Tensor* const from = ctx.find_in(grad);
    MILLRACE_ASSIGN_OR_RETURN(const Cuts cuts, bounds.read(ctx, to.dims()));
    const CutBox cut(to.dims(), cuts);
    if (from == nullptr || cut.box.dims != Dims(to.dims().begin(), to.dims().end()))
      fill_zero(ctx.device(), to);
    if (from == nullptr) return Ok();
    int64_t count = 1;
    for (const Cut& c : cuts) count *= c.count;
    if (from->numel() != count || from->dtype() != to.dtype())
      return ctx.error("Out@GRAD {} must have the {} elements of the slice", describe(*from),
                       count);
    const int64_t size = dtype_size(to.dtype());
    copy_strided(ctx.device(), size, cut.reversed(), to.raw() + cut.offset * size, from->raw());
    return Ok();
  });
}

}  // namespace

void add_tensor_slice(KernelRegistry& registry) {
  registry.add("slice", slice);
  registry.add("strided_slice", slice);
  registry.add("slice_grad", slice_grad);
  registry.add("strided_slice_grad", slice_grad);
}

}  // namespace millrace::kernels
