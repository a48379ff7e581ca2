#include <algorithm>

#include "kernels/cpu/int_list.h"
#include "kernels/cpu/strided.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

// Tensor arrays: lists of tensors that grow when written.
namespace millrace::kernels {
namespace {

// A longer array is treated as the result of a wrong index.
constexpr int64_t kMostElements = int64_t{1} << 30;

StatusOr<const TensorArray*> array_of(const KernelContext& ctx, ArgIndex arg) {
  if (const auto* const array = ctx.in_value(arg).get_if<TensorArray>()) return array;
  return ctx.error("X must be a tensor array, found {}", describe(ctx.in_value(arg)));
}

StatusOr<Kernel> write_to_array(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex index = op.input("I");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t at, one_int(ctx.in(index), "I"));
    if (at < 0 || at >= kMostElements)
      return ctx.error("I is {}, which is not a valid array index", at);
    auto& array = ctx.out_value(out).as<TensorArray>();
    const auto place = static_cast<size_t>(at);
    if (place >= array.size()) array.resize(place + 1);
    // writing a gradient that no op computed clears the element
    const auto* const tensor = ctx.in_value(x).get_if<Tensor>();
    if (tensor == nullptr || !tensor->initialized()) {
      array[place].reset();
      return Ok();
    }
    return array[place].copy_from(*tensor);
  });
}

StatusOr<Kernel> read_from_array(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex index = op.input("I");
  const ArgIndex like = op.input("X_W");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t at, one_int(ctx.in(index), "I"));
    const auto* const array = ctx.in_value(x).get_if<TensorArray>();
    Tensor& to = ctx.out(out);
    if (array != nullptr && at >= 0 && at < static_cast<int64_t>(array->size()) &&
        (*array)[static_cast<size_t>(at)].initialized())
      return to.copy_from((*array)[static_cast<size_t>(at)]);
    // the gradient of an unused element
    if (const Tensor* const shape = ctx.find_in(like); shape != nullptr && shape->initialized()) {
      MILLRACE_RETURN_IF_ERROR(size_output(to, shape->dtype(), shape->dims()));
      to.set_lod(shape->lod());
      fill_zero(ctx.device(), to);
      return Ok();
    }
    return ctx.error("I is {}, but X has no such element: {}", at, describe(ctx.in_value(x)));
  });
}

StatusOr<Kernel> lod_array_length(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const auto* const array = ctx.in_value(x).get_if<TensorArray>();
    *ctx.out(out).data<int64_t>() = array == nullptr ? 0 : static_cast<int64_t>(array->size());
    return Ok();
  });
}

// The elements of an array joined along an axis; maps part k to its position in the whole.
struct Join {
  Join(const TensorArray& array, int64_t axis_attr, bool stack)
      : axis(axis_attr), stacked(stack), size(0) {
    for (const Tensor& element : array)
      size += stack ? 1 : element.dims()[static_cast<size_t>(axis)];
  }
  [[nodiscard]] int64_t extent(const Tensor& element) const {
    return stacked ? 1 : element.dims()[static_cast<size_t>(axis)];
  }
  // to: the whole tensor
  [[nodiscard]] StridedBox box(const Tensor& element) const {
    const auto at = static_cast<size_t>(axis);
    const int64_t outer = ops::dims_product(element.dims().take_front(at));
    const int64_t part = ops::dims_product(element.dims().drop_front(at));
    const int64_t inner = ops::dims_product(element.dims().drop_front(stacked ? at : at + 1));
    StridedBox out;
    out.push(outer, size * inner, part);
    out.push(part, 1, 1);
    return out;
  }
  [[nodiscard]] int64_t inner(const Tensor& element) const {
    const auto at = static_cast<size_t>(axis);
    return ops::dims_product(element.dims().drop_front(stacked ? at : at + 1));
  }

  int64_t axis;
  bool stacked;
  int64_t size;
};

Status check_elements(const KernelContext& ctx, const TensorArray& array, size_t axis, bool stack) {
  const Tensor& first = array.front();
  for (size_t k = 0; k < array.size(); ++k) {
    const Tensor& element = array[k];
    bool fits =
        element.initialized() && element.dtype() == first.dtype() && element.rank() == first.rank();
    for (size_t d = 0; fits && d < first.rank(); ++d)
      fits = element.dims()[d] == first.dims()[d] || (d == axis && !stack);
    if (!fits)
      return ctx.error("element {} of the array, {}, cannot be joined with {}", k,
                       describe(element), describe(first));
  }
  return Ok();
}

StatusOr<Kernel> tensor_array_to_tensor(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out_arg = op.output("Out");
  const ArgIndex sizes_arg = op.output("OutIndex");
  const auto axis_attr = op.attr<int64_t>("axis");
  const bool stack = op.attr<bool>("use_stack");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const TensorArray* const array, array_of(ctx, x));
    if (array->empty()) return ctx.error("X is an array without elements");
    const Tensor& first = array->front();
    MILLRACE_ASSIGN_OR_RETURN(const int64_t axis,
                              axis_of(axis_attr, first.rank() + (stack ? 1 : 0)));
    if (!stack && first.rank() == 0) return ctx.error("elements without dims cannot be joined");
    const auto at = static_cast<size_t>(axis);
    MILLRACE_RETURN_IF_ERROR(check_elements(ctx, *array, at, stack));
    const Join join(*array, axis, stack);
    Dims dims(first.dims().begin(), first.dims().end());
    if (stack) dims.insert(dims.begin() + axis, 0);
    dims[at] = join.size;
    Tensor& out = ctx.out(out_arg);
    MILLRACE_RETURN_IF_ERROR(size_output(out, first.dtype(), dims));
    Tensor* const sizes = ctx.find_out(sizes_arg);
    if (sizes != nullptr) {
      MILLRACE_RETURN_IF_ERROR(
          size_output(*sizes, DType::kInt32, {static_cast<int64_t>(array->size())}));
    }
    const int64_t bytes = dtype_size(first.dtype());
    int64_t offset = 0;
    for (size_t k = 0; k < array->size(); ++k) {
      const Tensor& element = (*array)[k];
      copy_strided(ctx.device(), bytes, join.box(element), out.raw() + offset * bytes,
                   element.raw());
      offset += join.extent(element) * join.inner(element);
      if (sizes != nullptr) sizes->data<int32_t>()[k] = static_cast<int32_t>(join.extent(element));
    }
    return Ok();
  });
}

StatusOr<Kernel> tensor_array_to_tensor_grad(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex grad_arg = op.input("Out@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  const auto axis_attr = op.attr<int64_t>("axis");
  const bool stack = op.attr<bool>("use_stack");
  if (!x) return op.error("X is missing, which determines the shapes of the gradients");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!x_grad) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const TensorArray* const array, array_of(ctx, x));
    const Tensor* const grad = ctx.find_in(grad_arg);
    TensorArray result(array->size());
    for (size_t k = 0; k < array->size(); ++k) {
      MILLRACE_RETURN_IF_ERROR(result[k].resize((*array)[k].dtype(), (*array)[k].dims()));
      if (grad == nullptr) fill_zero(ctx.device(), result[k]);
    }
    if (grad != nullptr && !array->empty()) {
      const Tensor& first = array->front();
      MILLRACE_ASSIGN_OR_RETURN(const int64_t axis,
                                axis_of(axis_attr, first.rank() + (stack ? 1 : 0)));
      MILLRACE_RETURN_IF_ERROR(check_elements(ctx, *array, static_cast<size_t>(axis), stack));
      int64_t elements = 0;
      for (const Tensor& element : *array) elements += element.numel();
      if (grad->numel() != elements || grad->dtype() != first.dtype())
        return ctx.error("Out@GRAD {} must have the {} elements of the array", describe(*grad),
                         elements);
      const Join join(*array, axis, stack);
      int64_t offset = 0;
      for (Tensor& to : result) {
        StridedBox box = join.box(to);
        std::swap(box.to, box.from);
        const int64_t bytes = dtype_size(to.dtype());
        copy_strided(ctx.device(), bytes, box, to.raw(), grad->raw() + offset * bytes);
        offset += join.extent(to) * join.inner(to);
      }
    }
    ctx.out_value(x_grad).as<TensorArray>() = std::move(result);
    return Ok();
  });
}

}  // namespace

void add_control_flow_arrays(KernelRegistry& registry) {
  registry.add("write_to_array", write_to_array);
  registry.add("read_from_array", read_from_array);
  registry.add("lod_array_length", lod_array_length);
  registry.add("tensor_array_to_tensor", tensor_array_to_tensor);
  registry.add("tensor_array_to_tensor_grad", tensor_array_to_tensor_grad);
}

}  // namespace millrace::kernels
