#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/op.h"
#include "framework/var.h"
#include "ops/op_def.h"
#include "ops/read_attr.h"

namespace millrace::interchange {

/// The source of a conversion: the declared types and the attributes of one op.
///
/// Every attribute and slot that a converter reads is recorded; finish() refuses an op that has
/// others. An error of an accessor is kept until finish(), so that converters need no checks.
/// Axes that accessors return are not negative. Thread-safety: as a value.
class OpReader {
 public:
  /// \param format  name of the format that is written, for messages; it must be a literal
  OpReader(const Op& op, const ops::OpDef& def, llvm::StringRef format)
      : op_(op), def_(def), format_(format) {}

  /// The op that is converted.
  [[nodiscard]] const Op& op() const { return op_; }

  // ---- inputs
  /// True if the slot names a var.
  [[nodiscard]] bool has(llvm::StringRef slot) const;
  /// Declared dims and element type of a var of an input slot; -1 is an unknown extent.
  [[nodiscard]] Dims dims(llvm::StringRef slot, size_t k = 0) const;
  [[nodiscard]] DType dtype(llvm::StringRef slot) const;
  /// True if the first var of the slot is declared with LoD.
  [[nodiscard]] bool has_lod(llvm::StringRef slot) const;
  /// Number of dims of the first var of an input slot.
  [[nodiscard]] int64_t rank(llvm::StringRef slot) const {
    return static_cast<int64_t>(dims(slot).size());
  }
  /// Element type and dims of a var of an output slot.
  [[nodiscard]] DType out_dtype(llvm::StringRef slot, size_t k = 0) const;
  [[nodiscard]] Dims out_dims(llvm::StringRef slot, size_t k = 0) const;

  // ---- attributes
  /// The value, else the default of the schema.
  template <typename T>
  T attr(llvm::StringRef name) {
    known_.insert(name.str());
    return ops::read_attr<T>(def_, op_, name);
  }
  /// Integers of any kind of list.
  std::vector<int64_t> ints(llvm::StringRef name) { return attr<std::vector<int64_t>>(name); }
  /// An axis attribute, counted from the front of `rank` axes.
  int64_t axis(llvm::StringRef name, int64_t rank);
  /// The attribute has no influence on this conversion.
  void ignore(std::initializer_list<llvm::StringRef> names);

  // ---- outputs
  /// True if the op has the output and another op reads it.
  [[nodiscard]] bool wants(llvm::StringRef slot) const;

  // ---- errors
  /// The error for what has no counterpart in the format; its location is the op.
  [[nodiscard]] Status refuse(const std::string& why) const;
  /// Keeps the first error for finish().
  void fail(Status status);
  /// Called after the converter: errors of accessors, and what the converter did not read.
  /// \param common_attrs  attributes that every op may have and that have no influence
  Status finish(const std::set<std::string>& common_attrs);

 protected:
  /// The slot was read, or its vars have values.
  void note_input(llvm::StringRef slot) { inputs_read_.insert(slot.str()); }
  void note_output(llvm::StringRef slot) { outputs_set_.insert(slot.str()); }
  /// False after the first error.
  [[nodiscard]] bool is_ok() const { return status_.ok(); }
  /// The declaration of a var of a slot; null if there is none.
  [[nodiscard]] const Var* var_of(llvm::StringRef slot, size_t k, bool is_output) const;

 private:
  Status check_attrs(const std::set<std::string>& common_attrs) const;

  const Op& op_;
  const ops::OpDef& def_;
  llvm::StringRef format_;
  std::set<std::string> known_;
  std::set<std::string> inputs_read_;
  std::set<std::string> outputs_set_;
  Status status_;
};

}  // namespace millrace::interchange
