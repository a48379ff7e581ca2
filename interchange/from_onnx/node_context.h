#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <onnx/onnx_pb.h>

#include "framework/attribute.h"
#include "framework/program.h"
#include "interchange/from_onnx/tensors.h"
#include "io/params.h"
#include "ops/registry.h"

namespace millrace::interchange {

/// Elements of an integer, bool or float value that are known before the run, such as extents of a
/// shape; nullopt where an element is not. 80 bits hold every int64 and every f64.
using KnownElements = std::vector<std::optional<long double>>;

/// Limits of what a model states. Beyond them it is refused, so that sums and products of extents,
/// windows and borders never overflow.
inline constexpr int64_t kMaxExtent = int64_t{1} << 31;
inline constexpr int64_t kMaxElements = int64_t{1} << 48;
inline constexpr int64_t kMaxWindow = int64_t{1} << 24;
/// The most positions or weights that the import computes for one constant.
inline constexpr int64_t kMaxComputed = int64_t{1} << 24;

/// False if an extent or the number of elements is beyond the limits.
bool has_fair_size(const Dims& dims);
/// The integer of an element; the nearest int64 if it is none.
int64_t to_int64(long double value);

/// The program while the nodes of a model are converted in order.
struct ImportState {
  Program* program = nullptr;
  const ops::OpRegistry* registry = nullptr;
  io::ParamValues params;                      ///< content of constants, by var
  std::map<std::string, std::string> value;    ///< value of the model -> var
  std::map<std::string, KnownElements> known;  ///< var -> elements, in row-major order
  std::set<std::string> names;                 ///< vars, and names that vars will have
  std::set<std::string> not_computed;          ///< outputs that no converter computes
  std::string folder;                          ///< of the model, for data in other files
  int64_t opset = 0;                           ///< version of the operators without a domain
};

/// Remembers the elements of a constant, unless they are many.
void note_known(ImportState& state, const std::string& var, const Tensor& tensor);

/// Vars of a slot, and an attribute, of an op that a converter adds.
using SlotVars = std::pair<const char*, std::vector<std::string>>;
using OpAttr = std::pair<const char*, AttrValue>;

/// Attributes; numbers are converted to the kind that the schema of the op states.
inline OpAttr int_attr(const char* name, int64_t value) {
  return {name, AttrValue::of_long(value)};
}
inline OpAttr ints_attr(const char* name, std::vector<int64_t> values) {
  return {name, AttrValue::of_longs(std::move(values))};
}
inline OpAttr float_attr(const char* name, float value) {
  return {name, AttrValue::of_float(value)};
}
inline OpAttr bool_attr(const char* name, bool value) {
  return {name, AttrValue::of_bool(value)};
}
inline OpAttr string_attr(const char* name, std::string value) {
  return {name, AttrValue::of_string(std::move(value))};
}
inline OpAttr dtype_attr(const char* name, DType value) {
  return {name, AttrValue::of_int(static_cast<int32_t>(value))};
}

/// One node that is being converted, and the program.
///
/// Every attribute and input that a converter reads is recorded; finish() refuses a node that has
/// others. An error of an accessor is kept until finish(), so that converters need no checks: after
/// it, accessors return empty values and op() adds nothing.
class NodeContext {
 public:
  NodeContext(const ::onnx::NodeProto& node, ImportState& state);

  [[nodiscard]] const std::string& type() const { return node_.op_type(); }
  [[nodiscard]] int64_t opset() const { return state_.opset; }

  // ---- inputs
  /// True if the node has the input; optional ones may have an empty name.
  [[nodiscard]] bool has(size_t index) const;
  [[nodiscard]] size_t input_count() const { return static_cast<size_t>(node_.input_size()); }
  /// The var of an input. Errors: the node lacks it.
  std::string in(size_t index);
  /// All inputs. Errors: one of them is empty.
  std::vector<std::string> ins();

  // ---- vars
  [[nodiscard]] Dims dims(const std::string& var) const;
  [[nodiscard]] DType dtype(const std::string& var) const;
  [[nodiscard]] int64_t rank(const std::string& var) const {
    return static_cast<int64_t>(dims(var).size());
  }
  /// The extent of an axis, which may be negative; -1 if it is unknown or there is no such axis.
  [[nodiscard]] int64_t extent(const std::string& var, int64_t axis) const;
  /// True if all extents are known.
  [[nodiscard]] bool is_static(const std::string& var) const;
  /// The elements of a var as far as they are known; null if nothing is.
  [[nodiscard]] const KnownElements* known(const std::string& var) const;
  void set_known(const std::string& var, KnownElements elements);
  /// The elements of an integer var, if all are known.
  [[nodiscard]] std::optional<std::vector<int64_t>> ints(const std::string& var) const;
  /// The same of an input. Errors: refused, because the op has them as an attribute only.
  std::vector<int64_t> fixed_ints(size_t index, const char* what);
  /// The only element of a constant. \returns nullopt if it is computed, or no f64 holds it exactly
  [[nodiscard]] std::optional<double> number(const std::string& var) const;
  /// The content of a constant; null for what is computed.
  [[nodiscard]] const Tensor* constant(const std::string& var) const;
  /// States dims that inference could not know. Unknown ones stay as they are.
  void refine(const std::string& var, const Dims& dims);

  // ---- attributes
  [[nodiscard]] bool has_attr(const char* name) const;
  int64_t attr_int(const char* name, int64_t fallback);
  bool attr_bool(const char* name, bool fallback) { return attr_int(name, fallback ? 1 : 0) != 0; }
  float attr_float(const char* name, float fallback);
  std::string attr_string(const char* name, const std::string& fallback);
  std::vector<int64_t> attr_ints(const char* name);
  std::vector<float> attr_floats(const char* name);
  std::vector<std::string> attr_strings(const char* name);
  /// A tensor; null if the node does not have it.
  const ::onnx::TensorProto* attr_tensor(const char* name);
  /// The content of a tensor attribute. Errors: those of tensor_from_onnx(), with the node.
  StatusOr<Tensor> read_tensor(const ::onnx::TensorProto& proto) const;
  /// An axis, counted from the front. Errors: out of range.
  int64_t attr_axis(const char* name, int64_t fallback, int64_t rank);
  int64_t axis_of(int64_t axis, int64_t rank);
  /// The attribute has no influence on this conversion.
  void ignore(std::initializer_list<const char*> names);
  /// The inputs from this one on have no influence.
  void ignore_inputs(size_t first);

  // ---- ops
  /// Adds an op with one output. \returns its var
  std::string op(const char* type, const std::vector<SlotVars>& inputs,
                 const std::vector<OpAttr>& attrs = {}, const char* slot = "Out");
  /// Adds an op with outputs in several slots, or several vars in a slot.
  std::vector<std::string> ops(const char* type, const std::vector<SlotVars>& inputs,
                               const std::vector<OpAttr>& attrs,
                               const std::vector<std::pair<const char*, size_t>>& outputs);
  /// Adds an output to the op that computes `var`, which is the var `same`.
  void add_output(const std::string& var, const char* slot, const std::string& same);
  /// Constants. Dims [] make a scalar.
  std::string constant_var(Tensor tensor);
  std::string numbers(const std::vector<double>& values, DType dtype, const Dims& dims);
  std::string scalar(double value, DType dtype) { return numbers({value}, dtype, {}); }
  std::string longs(const std::vector<int64_t>& values, const Dims& dims);
  std::string longs(const std::vector<int64_t>& values) {
    return longs(values, {static_cast<int64_t>(values.size())});
  }

  // ---- ops that many converters need
  std::string cast(const std::string& var, DType to);
  /// 0 keeps an extent, -1 is computed.
  std::string reshape(const std::string& var, const std::vector<int64_t>& dims);
  std::string transpose(const std::string& var, const std::vector<int64_t>& order);
  std::string unsqueeze(const std::string& var, const std::vector<int64_t>& axes);
  std::string squeeze(const std::string& var, const std::vector<int64_t>& axes);
  std::string binary(const char* type, const std::string& x, const std::string& y);
  /// Repeats operands so that all have the same shape, as ONNX broadcasts.
  std::vector<std::string> broadcast(const std::vector<std::string>& vars);
  /// The shape as int64 [rank].
  std::string shape(const std::string& var);
  /// Elements [begin, end) of an axis; with `drop`, without the axis.
  std::string slice(const std::string& var, int64_t axis, int64_t begin, int64_t end,
                    bool drop = false);

  // ---- outputs
  /// Number of outputs that the node names.
  [[nodiscard]] size_t output_count() const { return static_cast<size_t>(node_.output_size()); }
  [[nodiscard]] bool has_output(size_t index) const;
  /// The value of the model is this var.
  void set(size_t index, const std::string& var);

  // ---- errors
  /// The error for what has no counterpart, with the node.
  [[nodiscard]] Status refuse(const std::string& why) const;
  /// Keeps the first error for finish().
  void fail(Status status);
  [[nodiscard]] bool is_ok() const { return status_.ok(); }
  /// Called after the converter: errors of accessors, and what the converter did not read.
  Status finish();

 private:
  [[nodiscard]] Block& block() const { return state_.program->root(); }
  [[nodiscard]] const Var* find(const std::string& var) const { return block().find_var(var); }
  const ::onnx::AttributeProto* find_attr(const char* name, int type);
  std::string unique(const std::string& wanted);
  template <typename T>
  std::string listed(const std::vector<T>& values, DType dtype, const Dims& dims);

  const ::onnx::NodeProto& node_;
  ImportState& state_;
  std::set<std::string> attrs_read_;
  std::set<size_t> inputs_read_;
  std::set<std::string> own_;  // vars that this node made
  std::set<size_t> outputs_set_;
  Status status_;
};

/// How a message names a node: "node 'conv1' (Conv)".
std::string node_text(const ::onnx::NodeProto& node);

/// Converts one node. \returns an error made by NodeContext::refuse() for what has no counterpart
using NodeConverter = Status (*)(NodeContext&);

/// A converter and the numbers of inputs that the node may have.
struct NodeRow {
  NodeConverter convert = nullptr;
  size_t min_inputs = 1;
  size_t max_inputs = 1;
};

/// Converters by node type.
using NodeTable = std::map<std::string, NodeRow>;

/// The families of nodes.
void add_activation_nodes(NodeTable& table);
void add_conv_nodes(NodeTable& table);
void add_elementwise_nodes(NodeTable& table);
void add_fill_nodes(NodeTable& table);
void add_index_nodes(NodeTable& table);
void add_matmul_nodes(NodeTable& table);
void add_norm_nodes(NodeTable& table);
void add_pool_nodes(NodeTable& table);
void add_reduce_nodes(NodeTable& table);
void add_resize_nodes(NodeTable& table);
void add_rnn_nodes(NodeTable& table);
void add_shape_nodes(NodeTable& table);

/// Computes the elements of the outputs that follow from known elements of the inputs.
void fold_known(const ::onnx::NodeProto& node, ImportState& state);

}  // namespace millrace::interchange
