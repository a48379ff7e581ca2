#include "executor/array_values.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "framework/tensor/layout.h"

namespace millrace {
namespace executor {

namespace {

Status misfit(const std::string& name, const Tensor& tensor, size_t bytes) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("array '{}': expected {} bytes for {}, found {}", name, tensor.bytes(),
                            describe(tensor), bytes));
}

}  // namespace

StatusOr<Tensor> to_tensor(const std::string& name, const Array& array) {
  Tensor tensor;
  MILLRACE_RETURN_IF_ERROR(tensor.resize(array.dtype, array.dims));
  if (static_cast<size_t>(tensor.bytes()) != array.bytes.size())
    return misfit(name, tensor, array.bytes.size());
  if (!array.bytes.empty()) std::memcpy(tensor.raw(), array.bytes.data(), array.bytes.size());
  tensor.set_lod(Lod(array.lod));
  return tensor;
}

StatusOr<Array> to_array(const std::string& name, const Value& value) {
  const auto* const tensor = value.get_if<Tensor>();
  if (tensor == nullptr || !tensor->initialized()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("var '{}': expected a dense array, found {}", name, describe(value)));
  }
  if (tensor->layout() != nullptr) {
    Value plain;
    MILLRACE_RETURN_IF_ERROR(copy_plain(*tensor, plain.as<Tensor>()));
    return to_array(name, plain);
  }
  Array array = detail::make_array(tensor->dtype(), {tensor->dims().begin(), tensor->dims().end()},
                                   tensor->raw(), static_cast<size_t>(tensor->bytes()));
  array.lod = tensor->lod().levels();
  return array;
}

Status to_values(const Arrays& arrays, std::map<std::string, Value>& values) {
  std::erase_if(values, [&](const auto& value) { return !arrays.contains(value.first); });
  for (const auto& [name, array] : arrays) {
    MILLRACE_ASSIGN_OR_RETURN(values[name].as<Tensor>(), to_tensor(name, array));
  }
  return Ok();
}

Status borrow_values(const ArrayViews& views, std::map<std::string, Value>& values) {
  std::erase_if(values, [&](const auto& value) { return !views.contains(value.first); });
  for (const auto& [name, view] : views) {
    auto& tensor = values[name].as<Tensor>();
    // A tensor has no memory for reading only; nothing writes to the values of a run's feeds.
    tensor.bind(nullptr, const_cast<std::byte*>(view.bytes.data()), view.bytes.size());
    MILLRACE_RETURN_IF_ERROR(tensor.resize(view.dtype, {view.dims.data(), view.dims.size()}));
    if (static_cast<size_t>(tensor.bytes()) != view.bytes.size())
      return misfit(name, tensor, view.bytes.size());
    tensor.set_lod(Lod(std::vector(view.lod.begin(), view.lod.end())));
  }
  return Ok();
}

StatusOr<Arrays> to_arrays(const std::vector<std::string>& names, llvm::ArrayRef<Value> values) {
  Arrays arrays;
  for (size_t i = 0; i < names.size(); ++i) {
    MILLRACE_ASSIGN_OR_RETURN(arrays[names[i]], to_array(names[i], values[i]));
  }
  return arrays;
}

StatusOr<Arrays> to_arrays(const std::map<std::string, Value>& values) {
  Arrays arrays;
  for (const auto& [name, value] : values) {
    MILLRACE_ASSIGN_OR_RETURN(arrays[name], to_array(name, value));
  }
  return arrays;
}

}  // namespace executor

ArrayViews views_of(const Arrays& arrays) {
  ArrayViews views;
  for (const auto& [name, array] : arrays)
    views.emplace(name, ArrayView{array.dtype, array.dims, array.bytes, array.lod});
  return views;
}

namespace detail {

Array make_array(DType dtype, std::vector<int64_t> dims, const void* data, size_t bytes) {
  Array array;
  array.dtype = dtype;
  array.dims = std::move(dims);
  const auto* const first = static_cast<const std::byte*>(data);
  array.bytes.assign(first, first + bytes);
  return array;
}

}  // namespace detail
}  // namespace millrace
