#include "interchange/onnx/graph.h"

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/tensor/float16.h"

namespace millrace::interchange {
namespace {

using ::onnx::AttributeProto;
using ::onnx::TensorProto;

void fill_attr(AttributeProto& proto, NodeAttr attr) {
  proto.set_name(attr.name);
  if (const auto* i = std::get_if<int64_t>(&attr.value)) {
    proto.set_type(AttributeProto::INT);
    proto.set_i(*i);
  } else if (const auto* f = std::get_if<float>(&attr.value)) {
    proto.set_type(AttributeProto::FLOAT);
    proto.set_f(*f);
  } else if (const auto* s = std::get_if<std::string>(&attr.value)) {
    proto.set_type(AttributeProto::STRING);
    proto.set_s(*s);
  } else if (const auto* is = std::get_if<std::vector<int64_t>>(&attr.value)) {
    proto.set_type(AttributeProto::INTS);
    for (const int64_t v : *is) proto.add_ints(v);
  } else if (const auto* fs = std::get_if<std::vector<float>>(&attr.value)) {
    proto.set_type(AttributeProto::FLOATS);
    for (const float v : *fs) proto.add_floats(v);
  } else if (const auto* ss = std::get_if<std::vector<std::string>>(&attr.value)) {
    proto.set_type(AttributeProto::STRINGS);
    for (const std::string& v : *ss) proto.add_strings(v);
  } else if (auto* t = std::get_if<TensorProto>(&attr.value)) {
    proto.set_type(AttributeProto::TENSOR);
    *proto.mutable_t() = std::move(*t);
  } else if (auto* g = std::get_if<::onnx::GraphProto>(&attr.value)) {
    proto.set_type(AttributeProto::GRAPH);
    *proto.mutable_g() = std::move(*g);
  }
}

template <typename T>
void append_raw(std::string& raw, T value) {
  raw.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_number(std::string& raw, DType dtype, double v) {
  switch (dtype) {
    case DType::kBool:
      return append_raw(raw, static_cast<uint8_t>(v != 0));
    case DType::kUint8:
      return append_raw(raw, static_cast<uint8_t>(v));
    case DType::kInt8:
      return append_raw(raw, static_cast<int8_t>(v));
    case DType::kInt16:
      return append_raw(raw, static_cast<int16_t>(v));
    case DType::kInt32:
      return append_raw(raw, static_cast<int32_t>(v));
    case DType::kInt64:
      return append_raw(raw, static_cast<int64_t>(v));
    case DType::kFloat16:
      return append_raw(raw, Float16(static_cast<float>(v)));
    case DType::kFloat64:
      return append_raw(raw, v);
    default:
      return append_raw(raw, static_cast<float>(v));
  }
}

}  // namespace

int32_t onnx_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return TensorProto::BOOL;
    case DType::kUint8:
      return TensorProto::UINT8;
    case DType::kInt8:
      return TensorProto::INT8;
    case DType::kInt16:
      return TensorProto::INT16;
    case DType::kInt32:
      return TensorProto::INT32;
    case DType::kInt64:
      return TensorProto::INT64;
    case DType::kFloat16:
      return TensorProto::FLOAT16;
    case DType::kFloat32:
      return TensorProto::FLOAT;
    case DType::kFloat64:
      return TensorProto::DOUBLE;
    default:
      return 0;
  }
}

std::string GraphBuilder::unique(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 1; !names_.insert(name).second; ++i) name = fmt::format("{}.{}", wanted, i);
  return name;
}

std::vector<std::string> GraphBuilder::add_node(const std::string& type,
                                                const std::vector<std::string>& inputs,
                                                std::vector<NodeAttr> attrs, int outputs) {
  ::onnx::NodeProto& node = *graph_.add_node();
  node.set_op_type(type);
  node.set_name(fmt::format("{}{}_{}", prefix_, type, graph_.node_size() - 1));
  for (const std::string& input : inputs) node.add_input(input);
  for (NodeAttr& attr : attrs) fill_attr(*node.add_attribute(), std::move(attr));
  std::vector<std::string> names;
  for (int i = 0; i < outputs; ++i) {
    names.push_back(unique(fmt::format("{}_out{}", node.name(), i)));
    temporary_.insert(names.back());
    node.add_output(names.back());
  }
  return names;
}

void GraphBuilder::rename(const std::string& from, const std::string& to, int first_node) {
  temporary_.erase(from);
  for (int i = first_node; i < graph_.node_size(); ++i) {
    ::onnx::NodeProto& node = *graph_.mutable_node(i);
    for (std::string& name : *node.mutable_input())
      if (name == from) name = to;
    for (std::string& name : *node.mutable_output())
      if (name == from) name = to;
  }
}

std::string GraphBuilder::add_constant(TensorProto tensor) {
  const auto [entry, is_new] = constants_.try_emplace(tensor.SerializeAsString());
  if (is_new) {
    entry->second = unique(fmt::format("const_{}", constants_.size() - 1));
    tensor.set_name(entry->second);
    constant_bytes_ += static_cast<int64_t>(tensor.raw_data().size());
    *graph_.add_initializer() = std::move(tensor);
  }
  return entry->second;
}

std::string GraphBuilder::ints(const std::vector<int64_t>& values,
                               const std::vector<int64_t>& dims) {
  TensorProto tensor;
  tensor.set_data_type(TensorProto::INT64);
  for (const int64_t dim : dims) tensor.add_dims(dim);
  for (const int64_t value : values) append_raw(*tensor.mutable_raw_data(), value);
  return add_constant(std::move(tensor));
}

std::string GraphBuilder::numbers(const std::vector<double>& values, DType dtype,
                                  const std::vector<int64_t>& dims) {
  TensorProto tensor;
  tensor.set_data_type(onnx_type(dtype));
  for (const int64_t dim : dims) tensor.add_dims(dim);
  for (const double value : values) append_number(*tensor.mutable_raw_data(), dtype, value);
  return add_constant(std::move(tensor));
}

Status GraphBuilder::add_tensor(const std::string& name, const Tensor& tensor) {
  if (onnx_type(tensor.dtype()) == 0)
    return Unimplemented("element type {} has no counterpart in ONNX", dtype_name(tensor.dtype()));
  TensorProto& proto = *graph_.add_initializer();
  proto.set_name(name);
  proto.set_data_type(onnx_type(tensor.dtype()));
  for (const int64_t dim : tensor.dims()) proto.add_dims(dim);
  proto.set_raw_data(tensor.raw(), static_cast<size_t>(tensor.bytes()));
  constant_bytes_ += tensor.bytes();
  return Ok();
}

}  // namespace millrace::interchange
