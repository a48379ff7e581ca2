#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <onnx/onnx_pb.h>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"

namespace millrace::interchange {

/// One attribute of a node.
struct NodeAttr {
  std::string name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
               std::vector<std::string>, ::onnx::TensorProto, ::onnx::GraphProto>
      value;
};

/// The number of an element type in ONNX; 0 for types that the export does not know.
int32_t onnx_type(DType dtype);

/// Appends nodes and initializers to a GraphProto. Value names are unique in the graph.
class GraphBuilder {
 public:
  /// \param prefix  of the names that add_node() makes: names of a graph and of graphs in it differ
  GraphBuilder(::onnx::GraphProto& graph, int opset, std::string prefix = "")
      : graph_(graph), opset_(opset), prefix_(std::move(prefix)) {}

  [[nodiscard]] int opset() const { return opset_; }
  [[nodiscard]] ::onnx::GraphProto& proto() { return graph_; }

  /// Reserves a name; if it is taken, the name with a number.
  std::string unique(const std::string& wanted);
  /// Appends a node. \returns the names of its outputs, which are temporary (see rename())
  std::vector<std::string> add_node(const std::string& type, const std::vector<std::string>& inputs,
                                    std::vector<NodeAttr> attrs, int outputs);
  /// Gives a value that add_node() returned a name that the reader of the graph knows.
  /// \param first_node  no earlier node mentions the value
  void rename(const std::string& from, const std::string& to, int first_node);
  /// True if the value is one that add_node() named.
  [[nodiscard]] bool is_temporary(const std::string& value) const {
    return temporary_.contains(value);
  }

  /// Adds a constant, or returns the name of an equal one. Dims [] make a scalar.
  std::string ints(const std::vector<int64_t>& values, const std::vector<int64_t>& dims);
  std::string ints(const std::vector<int64_t>& values) {
    return ints(values, {static_cast<int64_t>(values.size())});
  }
  /// Values of any element type, converted from f64.
  std::string numbers(const std::vector<double>& values, DType dtype,
                      const std::vector<int64_t>& dims);
  /// Adds the content of a tensor. Errors: kUnimplemented for its element type.
  Status add_tensor(const std::string& name, const Tensor& tensor);
  /// Bytes of all constants so far.
  [[nodiscard]] int64_t constant_bytes() const { return constant_bytes_; }

 private:
  std::string add_constant(::onnx::TensorProto tensor);

  ::onnx::GraphProto& graph_;
  int opset_;
  std::string prefix_;
  std::set<std::string> names_;
  std::set<std::string> temporary_;
  std::map<std::string, std::string> constants_;  // serialized form without name -> name
  int64_t constant_bytes_ = 0;
};

}  // namespace millrace::interchange
