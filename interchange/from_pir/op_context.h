#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/attribute.h"
#include "framework/program.h"
#include "interchange/from_pir/source.h"
#include "interchange/imported_model.h"
#include "ops/registry.h"

namespace millrace::interchange::pir {

/// A constant that became an attribute of the ops that read it, or a var if one needs that.
struct Constant {
  bool is_list = false;           ///< from `full_int_array`, else from `full`
  std::vector<int64_t> integers;  ///< of a list
  double value = 0;               ///< of all elements of a tensor
  Dims dims;                      ///< of a tensor
  DType dtype = DType::kFloat32;
  std::string var = {};  ///< once an op needs it as a tensor
};

/// The vars of a list of tensors.
using VarList = std::vector<int64_t>;

/// What a value of the program became: a var, a constant, a list of other values, or nothing,
/// because no op of ours computes it.
using Imported = std::variant<std::monostate, std::string, Constant, VarList>;

/// The program while its ops are converted in order.
struct ImportState {
  Program* program = nullptr;
  const ops::OpRegistry* registry = nullptr;
  io::ParamValues params = {};
  std::map<int64_t, Imported> values = {};
  std::set<std::string> names = {};  ///< of vars, and those that vars will have
  /// Vars that an op of ours computes otherwise than the program states, and how. Models do not use
  /// such results: for example what a kernel of release 3 keeps for the gradient.
  std::map<std::string, std::string> unlike = {};
};

/// One op of PIR that is being converted.
///
/// Every attribute and operand that a converter reads is recorded; finish() refuses an op that has
/// others. An error of an accessor is kept until finish(), so that converters need no checks.
class ImportContext {
 public:
  ImportContext(const SourceOp& op, size_t index, ImportState& state)
      : source_(op), index_(index), state_(state) {}

  [[nodiscard]] const SourceOp& source() const { return source_; }
  /// The name without its dialect: "relu".
  [[nodiscard]] llvm::StringRef name() const { return llvm::StringRef(source_.name).drop_front(2); }

  // ---- operands
  [[nodiscard]] size_t count() const { return source_.inputs.size(); }
  /// True if the operand is there.
  [[nodiscard]] bool has(size_t k) const { return k < count() && source_.inputs[k] != 0; }
  /// The var of an operand. Errors: it is absent, a list, or computed by no op of ours.
  std::string in(size_t k);
  /// The vars of an operand that is a list. Errors: it is none.
  std::vector<std::string> list(size_t k);
  /// The constant that an operand is; null if the program computes it.
  Constant* constant(size_t k);
  /// Numbers of a constant operand. Errors: refused, because the op has them as an attribute only;
  /// not one number.
  std::vector<int64_t> ints(size_t k, const char* what);
  int64_t integer(size_t k, const char* what);
  double number(size_t k, const char* what);
  /// True if the operand is a list.
  [[nodiscard]] bool is_list(size_t k) const;

  // ---- attributes
  /// The value. Errors: the op lacks it, or it is of another kind.
  template <typename T>
  T attr(llvm::StringRef name) {
    const SourceAttr* const found = find_attr(name);
    if (found == nullptr) return {};
    if (const T* const value = std::get_if<T>(found)) return *value;
    if constexpr (IsList<T>::value)
      if (std::holds_alternative<std::monostate>(*found)) return {};
    fail_kind(name);
    return {};
  }
  /// An element type; -1 if it is that of the operand.
  int32_t dtype_attr(llvm::StringRef name);
  /// The attributes have no influence.
  void ignore(std::initializer_list<llvm::StringRef> names);

  // ---- vars
  [[nodiscard]] Dims dims(const std::string& var) const;
  [[nodiscard]] DType dtype(const std::string& var) const;

  // ---- ops
  /// Appends an op. Set its slots and attributes, and then call finish_op().
  Op& append(const char* type);
  void set_attr(Op& op, const char* name, const AttrValue& value);
  /// Declares the var of a result and adds it to a slot.
  void add_result(Op& op, const char* slot, size_t k);
  /// The same for the tensors of a list.
  void add_results(Op& op, const char* slot, size_t k);
  /// The result is the var that the op updates in place.
  void set_result(Op& op, const char* slot, size_t k, const std::string& var);
  /// Infers element types and dims, and compares them with those that the program states. A result
  /// that differs is refused where it is read.
  void finish_op(Op& op);
  /// An op with one result, for converters of more than one op.
  std::string add(const char* type, const std::vector<std::pair<const char*, std::string>>& inputs,
                  const std::vector<std::pair<const char*, AttrValue>>& attrs,
                  const char* slot = "Out");
  /// The result is this value.
  void set(size_t k, Imported value);
  /// The op writes result `k` to the memory of an operand: who reads the operand later reads it.
  void overwrite(size_t operand, size_t k);

  // ---- errors
  [[nodiscard]] Status refuse(const std::string& why) const;
  void fail(Status status);
  [[nodiscard]] bool is_ok() const { return status_.ok(); }
  /// Called after the converter: errors of accessors, and what the converter did not read.
  Status finish();

 private:
  template <typename T>
  struct IsList : std::false_type {};
  template <typename T>
  struct IsList<std::vector<T>> : std::true_type {};

  [[nodiscard]] Block& block() const { return state_.program->root(); }
  /// A result of the op. Errors: the op has fewer; then it is an empty one.
  const SourceResult& result(size_t k);
  const SourceAttr* find_attr(llvm::StringRef name);
  void fail_kind(llvm::StringRef name);
  /// The value of an operand, which counts as read.
  Imported* read(size_t k);
  std::string var_of(int64_t id);
  std::string var_of(Constant& constant);
  std::string new_var(const std::string& stem);
  void check_type(const std::string& var, const TensorType& stated);

  const SourceOp& source_;
  size_t index_;
  ImportState& state_;
  std::set<std::string> attrs_read_;
  std::set<size_t> inputs_read_;
  std::vector<std::pair<std::string, TensorType>> made_;  // results of the op that is being made
  Status status_;
};

/// Converts one op. \returns an error made by ImportContext::refuse() for what has no counterpart
using ImportConverter = Status (*)(ImportContext&);
using ImportConverters = std::map<std::string, ImportConverter>;

/// Ops that need more than a row of the export, by name without dialect.
void add_constant_imports(ImportConverters& table);
void add_arithmetic_imports(ImportConverters& table);
void add_recurrent_imports(ImportConverters& table);
void add_shape_imports(ImportConverters& table);

/// Converts the op by a row of the export, read backwards. Errors: those of refuse().
struct Row;
Status convert_back_by_row(ImportContext& c, const Row& row);
/// The row for an op of PIR with as many operands; null: there is none.
const Row* row_of(const SourceOp& op);
/// The names of all ops that have a row for an op of the registry.
std::vector<std::string> names_of_rows(const ops::OpRegistry& registry);

}  // namespace millrace::interchange::pir
