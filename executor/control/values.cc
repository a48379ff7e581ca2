#include "executor/control/values.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "framework/tensor/layout.h"
#include "kernels/dispatch.h"
#include "kernels/gpu/resident_values.h"

namespace millrace::executor {
namespace {

Status unexpected(const Value& value) {
  return {StatusCode::kInternal, fmt::format("a loop cannot pass on {}", describe(value))};
}

template <typename T>
void add(const T* from, int64_t count, T* to) {
  using C = kernels::Compute<T>;
  for (int64_t i = 0; i < count; ++i)
    to[i] = static_cast<T>(static_cast<C>(to[i]) + static_cast<C>(from[i]));
}

Status add_tensor(const Tensor& given, Tensor& to) {
  if (!given.initialized()) return Ok();
  if (!to.initialized()) return gpu::copy_value_of(given, to);
  Tensor from = given.share();  // may be moved to where the sum is
  if (to.dtype() != from.dtype() || to.dims() != from.dims()) {
    return {StatusCode::kExecution,
            fmt::format("gradients of two steps differ: {} and {}", describe(to), describe(from))};
  }
  MILLRACE_ASSIGN_OR_RETURN(const bool is_done, gpu::add_resident(from, to));
  if (is_done) return Ok();
  return kernels::dispatch<kernels::AllNumberTypes>(from.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    add(from.data<T>(), from.numel(), to.data<T>());
    return Ok();
  });
}

Status add_rows(const SelectedRows& given, SelectedRows& to) {
  if (given.rows.empty()) return Ok();
  if (to.rows.empty()) {
    to.rows = given.rows;
    to.height = given.height;
    return gpu::copy_value_of(given.value, to.value);
  }
  SelectedRows from;
  from.rows = given.rows;
  from.height = given.height;
  from.value = given.value.share();
  MILLRACE_RETURN_IF_ERROR(make_plain(from.value));
  MILLRACE_RETURN_IF_ERROR(make_plain(to.value));
  const bool fits =
      to.value.rank() == from.value.rank() && to.value.dtype() == from.value.dtype() &&
      std::equal(to.value.dims().begin() + 1, to.value.dims().end(), from.value.dims().begin() + 1);
  if (!fits) {
    return {StatusCode::kExecution, fmt::format("sparse gradients of two steps differ: {} and {}",
                                                describe(to.value), describe(from.value))};
  }
  Dims dims(to.value.dims().begin(), to.value.dims().end());
  dims[0] += from.value.dim(0);
  MILLRACE_ASSIGN_OR_RETURN(Tensor joined, Tensor::create(to.value.dtype(), dims));
  std::memcpy(joined.raw(), to.value.raw(), static_cast<size_t>(to.value.bytes()));
  std::memcpy(joined.raw() + to.value.bytes(), from.value.raw(),
              static_cast<size_t>(from.value.bytes()));
  to.value = std::move(joined);
  to.rows.insert(to.rows.end(), from.rows.begin(), from.rows.end());
  return Ok();
}

}  // namespace

Status link(const Value& from, Value& to) {
  if (const auto* const tensor = from.get_if<Tensor>()) {
    to.as<Tensor>() = tensor->share();
  } else if (const auto* const rows = from.get_if<SelectedRows>()) {
    auto& target = to.as<SelectedRows>();
    target.rows = rows->rows;
    target.height = rows->height;
    target.value = rows->value.share();
  } else if (const auto* const array = from.get_if<TensorArray>()) {
    auto& target = to.as<TensorArray>();
    target.clear();
    for (const Tensor& element : *array) target.push_back(element.share());
  } else if (from.holds<std::monostate>()) {
    to.clear();
  } else {
    return unexpected(from);
  }
  return Ok();
}

Status copy_into(const Value& from, Value& to) {
  if (const auto* const tensor = from.get_if<Tensor>())
    return gpu::copy_value_of(*tensor, to.as<Tensor>());
  if (const auto* const array = from.get_if<TensorArray>()) {
    TensorArray copy(array->size());
    for (size_t i = 0; i < copy.size(); ++i)
      MILLRACE_RETURN_IF_ERROR(gpu::copy_value_of((*array)[i], copy[i]));
    to.as<TensorArray>() = std::move(copy);
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(to, clone(from));
  return Ok();
}

Status add_into(const Value& from, Value& to) {
  if (!to.initialized()) return copy_into(from, to);
  if (const auto* const tensor = from.get_if<Tensor>()) {
    if (Tensor* const target = to.get_if<Tensor>()) return add_tensor(*tensor, *target);
  } else if (const auto* const rows = from.get_if<SelectedRows>()) {
    if (auto* const target = to.get_if<SelectedRows>()) return add_rows(*rows, *target);
  } else if (const auto* const array = from.get_if<TensorArray>()) {
    if (auto* const target = to.get_if<TensorArray>()) {
      if (target->size() < array->size()) target->resize(array->size());
      for (size_t i = 0; i < array->size(); ++i)
        MILLRACE_RETURN_IF_ERROR(add_tensor((*array)[i], (*target)[i]));
      return Ok();
    }
  }
  return {StatusCode::kExecution,
          fmt::format("gradients of two steps differ: {} and {}", describe(to), describe(from))};
}

Status set_zeros_like(const Tensor& like, Tensor& to) {
  if (!like.initialized()) {
    to.reset();
    return Ok();
  }
  return gpu::make_zeros_like(like, to);
}

Status set_zeros_like(const Value& like, Value& to) {
  if (like.holds<std::monostate>()) {  // of a branch that has not been taken
    to.clear();
    return Ok();
  }
  if (const auto* const tensor = like.get_if<Tensor>())
    return set_zeros_like(*tensor, to.as<Tensor>());
  if (const auto* const array = like.get_if<TensorArray>()) {
    auto& target = to.as<TensorArray>();
    target.clear();
    target.resize(array->size());
    for (size_t i = 0; i < array->size(); ++i)
      MILLRACE_RETURN_IF_ERROR(set_zeros_like((*array)[i], target[i]));
    return Ok();
  }
  if (const auto* const rows = like.get_if<SelectedRows>()) {
    auto& target = to.as<SelectedRows>();
    target.rows.clear();
    target.height = rows->height;
    Dims dims(rows->value.dims().begin(), rows->value.dims().end());
    if (!dims.empty()) dims[0] = 0;
    return target.value.resize(rows->value.dtype(), dims);
  }
  return unexpected(like);
}

StatusOr<bool> read_condition(const kernels::KernelContext& args, kernels::ArgIndex arg) {
  const Value& value = args.in_value(arg);
  const auto* const tensor = value.get_if<Tensor>();
  if (tensor == nullptr || !tensor->initialized() || tensor->numel() != 1 ||
      tensor->dtype() != DType::kBool) {
    return args.error("the condition must be one bool, found {}", describe(value));
  }
  if (tensor->layout() == nullptr) return *tensor->data<bool>();
  Tensor plain;
  MILLRACE_RETURN_IF_ERROR(copy_plain(*tensor, plain));
  return *plain.data<bool>();
}

const StepScopes* scopes_in(const kernels::KernelContext& args, kernels::ArgIndex arg) {
  return arg ? args.in_value(arg).get_if<StepScopes>() : nullptr;
}

}  // namespace millrace::executor
