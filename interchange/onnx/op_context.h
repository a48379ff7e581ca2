#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/tensor/value.h"
#include "interchange/onnx/graph.h"
#include "interchange/op_reader.h"

namespace millrace::interchange {

/// The values of a program's vars while its ops are converted in order.
struct VarValues {
  std::map<std::string, std::string> value;             ///< var -> current value of the graph
  std::map<std::string, std::vector<std::string>> lod;  ///< var -> offsets of each LoD level
  std::map<std::string, const Tensor*> constant;        ///< content of parameters
};

/// One op that is being converted, and the graph.
class OpContext : public OpReader {
 public:
  OpContext(const Op& op, const ops::OpDef& def, GraphBuilder& graph, VarValues& vars)
      : OpReader(op, def, "ONNX"),
        graph_(graph),
        vars_(vars),
        first_node_(graph.proto().node_size()) {}

  GraphBuilder& graph() { return graph_; }
  [[nodiscard]] int opset() const { return graph_.opset(); }

  // ---- inputs
  /// The value of the only var of a slot.
  std::string in(llvm::StringRef slot);
  /// The values of all vars of a slot.
  std::vector<std::string> ins(llvm::StringRef slot);
  /// Offsets (int64 [sequences + 1]) of the last LoD level of an input; an error if it has none.
  std::string offsets(llvm::StringRef slot);
  /// The offsets of all levels; empty for an input without LoD.
  [[nodiscard]] std::vector<std::string> lod(llvm::StringRef slot) const;

  // ---- outputs
  /// Binds the var of an output slot to a value.
  void set(llvm::StringRef slot, const std::string& value, size_t k = 0);
  /// Gives an output LoD; without it, outputs that are declared with LoD get that of an input.
  void set_lod(llvm::StringRef slot, std::vector<std::string> levels);

  // ---- nodes
  std::string node(const std::string& type, const std::vector<std::string>& inputs,
                   std::vector<NodeAttr> attrs = {});
  std::vector<std::string> nodes(const std::string& type, const std::vector<std::string>& inputs,
                                 std::vector<NodeAttr> attrs, int outputs) {
    return graph_.add_node(type, inputs, std::move(attrs), outputs);
  }
  std::string cast(const std::string& value, DType to);
  std::string reshape(const std::string& value, const std::vector<int64_t>& dims);
  /// Removes axes of extent 1, or adds them.
  std::string squeeze(const std::string& value, const std::vector<int64_t>& axes);
  std::string unsqueeze(const std::string& value, const std::vector<int64_t>& axes);
  std::string transpose(const std::string& value, const std::vector<int64_t>& order);
  /// A reduction: axes are an attribute or an input, depending on the operator set.
  std::string reduce(const std::string& type, const std::string& value,
                     const std::vector<int64_t>& axes, bool keep);
  /// Elements [begin, end) of one axis.
  std::string slice(const std::string& value, int64_t axis, int64_t begin, int64_t end);
  /// A scalar of an element type.
  std::string scalar(double value, DType dtype) { return graph_.numbers({value}, dtype, {}); }
  /// The extents of a value (int64 [rank]), and one of them (int64 [1]).
  std::string shape(const std::string& value) { return node("Shape", {value}); }
  std::string extent(const std::string& value, int64_t axis);

 private:
  GraphBuilder& graph_;
  VarValues& vars_;
  int first_node_;
  std::set<std::string> lod_set_;
};

/// Converts one op. \returns an error made by OpContext::refuse() for what ONNX cannot express
using Converter = Status (*)(OpContext&);

/// Converters by op type.
using ConverterTable = std::map<std::string, Converter>;

/// The families of ops.
void add_activation_ops(ConverterTable& table);
void add_conv_ops(ConverterTable& table);
void add_crf_ops(ConverterTable& table);
void add_detection_ops(ConverterTable& table);
void add_elementwise_ops(ConverterTable& table);
void add_embedding_ops(ConverterTable& table);
void add_fill_ops(ConverterTable& table);
void add_index_ops(ConverterTable& table);
void add_matmul_ops(ConverterTable& table);
void add_norm_ops(ConverterTable& table);
void add_pool_ops(ConverterTable& table);
void add_reduce_ops(ConverterTable& table);
void add_resize_ops(ConverterTable& table);
void add_rnn_ops(ConverterTable& table);
void add_sequence_ops(ConverterTable& table);
void add_shape_ops(ConverterTable& table);
void add_yolo_ops(ConverterTable& table);

}  // namespace millrace::interchange
