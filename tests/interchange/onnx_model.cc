#include "tests/interchange/onnx_model.h"

#include <onnx/onnx_pb.h>

namespace millrace::testing {

OnnxModel::OnnxModel(int64_t opset) : model_(std::make_unique<::onnx::ModelProto>()) {
  model_->set_ir_version(8);
  ::onnx::OperatorSetIdProto& set = *model_->add_opset_import();
  set.set_domain("");
  set.set_version(opset);
  model_->mutable_graph()->set_name("test");
}

OnnxModel::OnnxModel(OnnxModel&&) noexcept = default;
OnnxModel::~OnnxModel() = default;

::onnx::GraphProto& OnnxModel::graph() {
  return *model_->mutable_graph();
}

std::string OnnxModel::bytes() const {
  return model_->SerializeAsString();
}

OnnxModel& OnnxModel::input(const std::string& name, std::initializer_list<int64_t> dims,
                            int32_t type) {
  ::onnx::ValueInfoProto& info = *graph().add_input();
  info.set_name(name);
  auto& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(type);
  auto& shape = *tensor.mutable_shape();
  for (const int64_t dim : dims) {
    if (dim < 0)
      shape.add_dim()->set_dim_param(name + "_dim");
    else
      shape.add_dim()->set_dim_value(dim);
  }
  return *this;
}

OnnxModel& OnnxModel::output(const std::string& name, int32_t type) {
  ::onnx::ValueInfoProto& info = *graph().add_output();
  info.set_name(name);
  info.mutable_type()->mutable_tensor_type()->set_elem_type(type);
  return *this;
}

::onnx::NodeProto& OnnxModel::node(const std::string& type,
                                   std::initializer_list<const char*> inputs,
                                   std::initializer_list<const char*> outputs) {
  ::onnx::NodeProto& added = *graph().add_node();
  added.set_op_type(type);
  for (const char* const name : inputs) added.add_input(name);
  for (const char* const name : outputs) added.add_output(name);
  return added;
}

::onnx::TensorProto& OnnxModel::floats(const std::string& name, std::initializer_list<int64_t> dims,
                                       const std::vector<float>& values) {
  ::onnx::TensorProto& tensor = constant(name, dims, kOnnxFloat);
  for (const float value : values) tensor.add_float_data(value);
  return tensor;
}

::onnx::TensorProto& OnnxModel::longs(const std::string& name, const std::vector<int64_t>& values) {
  ::onnx::TensorProto& tensor = constant(name, {static_cast<int64_t>(values.size())}, kOnnxInt64);
  for (const int64_t value : values) tensor.add_int64_data(value);
  return tensor;
}

::onnx::TensorProto& OnnxModel::constant(const std::string& name,
                                         std::initializer_list<int64_t> dims, int32_t type) {
  ::onnx::TensorProto& tensor = *graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(type);
  for (const int64_t dim : dims) tensor.add_dims(dim);
  return tensor;
}

void set_int(::onnx::NodeProto& node, const std::string& name, int64_t value) {
  ::onnx::AttributeProto& attr = *node.add_attribute();
  attr.set_name(name);
  attr.set_type(::onnx::AttributeProto::INT);
  attr.set_i(value);
}

}  // namespace millrace::testing
