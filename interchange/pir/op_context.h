#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "interchange/op_reader.h"
#include "interchange/pir/graph.h"

namespace millrace::interchange::pir {

/// Var -> its current value.
using VarValues = std::map<std::string, Value>;

/// The key of the value whose extents a var XShape holds: the operand of reshape2 and similar ops.
std::string shape_key(llvm::StringRef xshape);

/// What converts the ops of a block, for ops that own one.
class BlockConverter {
 public:
  virtual ~BlockConverter() = default;
  /// Converts all ops of the block. Errors: those of the converters.
  virtual Status convert(Block& block) = 0;
  /// Shape inference of all ops of the block and of the blocks in it.
  virtual Status infer(Block& block) = 0;
};

/// One op that is being converted, and the program.
class OpContext : public OpReader {
 public:
  OpContext(const Op& op, const ops::OpDef& def, GraphBuilder& graph, VarValues& vars,
            BlockConverter& blocks)
      : OpReader(op, def, "PIR"), graph_(graph), vars_(vars), blocks_(blocks) {}

  /// The program that is written.
  GraphBuilder& graph() { return graph_; }
  /// The values of all vars.
  VarValues& vars() { return vars_; }

  /// Converts, or infers the dims of, the ops of a block that the op owns.
  Status convert_block(Block& block) { return blocks_.convert(block); }
  Status infer_block(Block& block) { return blocks_.infer(block); }

  // ---- inputs
  /// The value of the only var of a slot.
  Value in(llvm::StringRef slot);
  /// The same; a value that does not exist if the slot is empty.
  Value in_or_none(llvm::StringRef slot);
  /// The values of all vars of a slot.
  std::vector<Value> ins(llvm::StringRef slot);
  /// True if the first argument of an input slot is a var: gradients that do not exist are none.
  [[nodiscard]] bool names_var(llvm::StringRef slot) const;
  /// A value with the extents that the var of the slot XShape holds.
  Value shaped_as(llvm::StringRef xshape);
  /// The operand that an op updates in place: the value itself if the updated var is the var of the
  /// output and belongs to the root block, else a copy.
  Value to_update(const Value& value, llvm::StringRef input, llvm::StringRef output);

  /// The slot has no influence, or its vars are read in another way.
  void note_input_slot(llvm::StringRef slot) { note_input(slot); }

  // ---- outputs
  /// The vars of the slot have their values, or nothing reads them.
  void note_output_slot(llvm::StringRef slot) { note_output(slot); }
  /// The type of a var of an output slot: what shape inference knows. A slot without vars has the
  /// type of a scalar of f32.
  [[nodiscard]] TensorType out_type(llvm::StringRef slot, size_t k = 0) const;
  /// Binds the var of an output slot to a value.
  void set(llvm::StringRef slot, const Value& value, size_t k = 0);
  /// The same for the result of an op that updates its operand in place.
  void set_updated(llvm::StringRef slot, const Value& value);
  /// True if the k-th argument of an output slot is a var.
  [[nodiscard]] bool computes(llvm::StringRef slot, size_t k = 0) const;
  /// Ids of the values that are the memory of an updated var.
  [[nodiscard]] const std::set<int64_t>& updated() const { return updated_; }

  // ---- ops
  /// Adds an op of the dialect of operators with one result of the given type.
  Value node(const std::string& name, const std::vector<Value>& inputs,
             const std::vector<Attr>& attrs, TensorType type);
  /// The same with several results.
  std::vector<Value> nodes(const std::string& name, const std::vector<Value>& inputs,
                           const std::vector<Attr>& attrs, std::vector<Value> results) {
    return graph_.add("1." + name, inputs, attrs, std::move(results));
  }
  /// Joins values to a list, and takes a list apart.
  Value list(const std::vector<Value>& values);
  std::vector<Value> parts(const Value& value);
  /// A constant. \param on_host  a kernel reads it on the host: a scalar attribute, not data
  Value full(double value, DType dtype, const std::vector<int64_t>& dims = {1},
             bool on_host = true);
  /// A list of integers that a kernel reads on the host.
  Value int_list(const std::vector<int64_t>& values);
  /// The value with another element type; itself if it has it.
  Value cast(const Value& value, DType dtype);
  /// 0 keeps an extent and -1 is what is left, as in the original.
  Value reshape(const Value& value, const std::vector<int64_t>& dims);
  /// Removes axes of extent 1, or adds them.
  Value squeeze(const Value& value, const std::vector<int64_t>& axes);
  Value unsqueeze(const Value& value, const std::vector<int64_t>& axes);
  /// Joins the axes from `first` to `last` (inclusive) to one.
  Value flatten(const Value& value, int64_t first, int64_t last);
  /// The matrix whose rows are the first `rows` dims.
  Value as_matrix(const Value& value, int64_t rows);
  /// The value with the LoD of an input; itself if that is declared without LoD.
  Value with_lod_of(llvm::StringRef slot, const Value& value);

 private:
  GraphBuilder& graph_;
  VarValues& vars_;
  BlockConverter& blocks_;
  std::set<int64_t> updated_;
};

/// Converts one op. \returns an error made by OpContext::refuse() for what PIR cannot express
using Converter = Status (*)(OpContext&);

}  // namespace millrace::interchange::pir
