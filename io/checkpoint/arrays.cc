#include "io/checkpoint/arrays.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "framework/base/errors.h"

namespace millrace::io {
namespace {

// The tensors of a const or non-const value.
template <typename Pointer, typename Holder>
std::vector<Pointer> collect(Holder& value) {
  std::vector<Pointer> tensors;
  if (auto* const tensor = value.template get_if<Tensor>()) tensors.push_back(tensor);
  if (auto* const rows = value.template get_if<SelectedRows>()) tensors.push_back(&rows->value);
  if (auto* const array = value.template get_if<TensorArray>()) {
    for (auto& element : *array)
      if (element.initialized()) tensors.push_back(&element);
  }
  return tensors;
}

}  // namespace

std::string array_element_name(std::string_view array, size_t index) {
  return fmt::format("{}[{}]", array, index);
}

StatusOr<FlatState> flatten(const LocalState& state) {
  FlatState flat;
  flat.state.records = state.records;
  flat.state.user = state.user;
  for (const LocalTensor& local : state.tensors) {
    const auto* const array = local.value == nullptr ? nullptr : local.value->get_if<TensorArray>();
    if (array == nullptr) {
      flat.state.tensors.push_back(local);
      continue;
    }
    Status status = check_entry_name(local.name);
    if (local.global_dims || local.some_rows)
      status = InvalidArgument("a tensor array has no parts: it is saved whole");
    if (!status.ok()) {
      Location location;
      location.var = local.name;
      return std::move(status).at(std::move(location));
    }
    StoredArray& stored = flat.arrays.emplace_back();
    stored.name = local.name;
    for (size_t i = 0; i < array->size(); ++i) {
      stored.written.push_back((*array)[i].initialized());
      if (!stored.written.back()) continue;
      flat.elements.emplace_back().as<Tensor>() = (*array)[i].share();
      flat.state.add(array_element_name(local.name, i), flat.elements.back());
    }
  }
  std::ranges::sort(flat.arrays, {}, &StoredArray::name);
  const auto twice = std::ranges::adjacent_find(flat.arrays, {}, &StoredArray::name);
  if (twice != flat.arrays.end()) {
    Location location;
    location.var = twice->name;
    return InvalidArgument("the name occurs twice").at(std::move(location));
  }
  return flat;
}

std::vector<Tensor*> tensors_of(Value& value) {
  return collect<Tensor*>(value);
}

std::vector<const Tensor*> tensors_of(const Value& value) {
  return collect<const Tensor*>(value);
}

uint64_t tensor_bytes(const Value& value) {
  uint64_t sum = 0;
  for (const Tensor* const tensor : tensors_of(value))
    sum += static_cast<uint64_t>(tensor->bytes());
  return sum;
}

}  // namespace millrace::io
