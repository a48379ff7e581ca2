#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/ADT/ilist_node.h>

#include "framework/attribute.h"
#include "framework/base/status.h"
#include "framework/name_table.h"

namespace millrace {

class Block;
class Program;

/// One argument of a slot: a var name and its position in the block's use list.
struct Arg {
  NameId name;                ///< of the var
  uint32_t use_position = 0;  ///< index in the list of uses that the block keeps for that name
};

/// A named input or output of an op with its var names in order. Files may contain empty slots.
struct Slot {
  NameId name;                     ///< of the slot
  llvm::SmallVector<Arg, 1> args;  ///< most slots have one
};

/// One operator of a block. Owned by the block; its address is stable while it lives.
///
/// Edits keep the block's index of readers and writers up to date. Thread-safety: as its Program.
class Op : public llvm::ilist_node<Op> {
 public:
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;
  ~Op() = default;

  /// Op type, such as "conv2d"; as text and as an id of the program's names.
  [[nodiscard]] llvm::StringRef type() const;
  [[nodiscard]] NameId type_id() const { return type_; }
  void set_type(llvm::StringRef type);
  /// Owners of the op.
  [[nodiscard]] Block& block() const { return *block_; }
  [[nodiscard]] Program& program() const;

  /// Slots in file order; valid until the op is edited.
  [[nodiscard]] llvm::ArrayRef<Slot> inputs() const { return inputs_; }
  [[nodiscard]] llvm::ArrayRef<Slot> outputs() const { return outputs_; }
  /// The text of a name id of this program.
  [[nodiscard]] llvm::StringRef name_of(NameId id) const;

  /// Names in a slot; empty if the op does not have the slot.
  [[nodiscard]] llvm::SmallVector<llvm::StringRef, 4> input(llvm::StringRef slot) const;
  [[nodiscard]] llvm::SmallVector<llvm::StringRef, 4> output(llvm::StringRef slot) const;
  /// First name in a slot; empty if there is none.
  [[nodiscard]] llvm::StringRef first_input(llvm::StringRef slot) const;
  [[nodiscard]] llvm::StringRef first_output(llvm::StringRef slot) const;
  /// The slot itself; null if the op does not have it.
  [[nodiscard]] const Slot* find_input(llvm::StringRef slot) const;
  [[nodiscard]] const Slot* find_output(llvm::StringRef slot) const;
  /// All input (output) names in slot order, including repeated names.
  [[nodiscard]] llvm::SmallVector<llvm::StringRef, 8> input_names() const;
  [[nodiscard]] llvm::SmallVector<llvm::StringRef, 8> output_names() const;
  /// True if the op reads (writes) the name.
  [[nodiscard]] bool reads(llvm::StringRef name) const;
  [[nodiscard]] bool writes(llvm::StringRef name) const;

  /// Sets the names of a slot. A slot that does not exist is added after the others.
  Op& set_input(llvm::StringRef slot, llvm::ArrayRef<llvm::StringRef> names);
  Op& set_output(llvm::StringRef slot, llvm::ArrayRef<llvm::StringRef> names);
  Op& set_input(llvm::StringRef slot, llvm::ArrayRef<std::string> names);
  Op& set_output(llvm::StringRef slot, llvm::ArrayRef<std::string> names);
  Op& set_input(llvm::StringRef slot, llvm::StringRef name) {
    return set_input(slot, llvm::ArrayRef(name));
  }
  Op& set_output(llvm::StringRef slot, llvm::StringRef name) {
    return set_output(slot, llvm::ArrayRef(name));
  }
  Op& set_input(llvm::StringRef slot, const char* name) {
    return set_input(slot, llvm::StringRef(name));
  }
  Op& set_output(llvm::StringRef slot, const char* name) {
    return set_output(slot, llvm::StringRef(name));
  }
  Op& set_input(llvm::StringRef slot, const std::string& name) {
    return set_input(slot, llvm::StringRef(name));
  }
  Op& set_output(llvm::StringRef slot, const std::string& name) {
    return set_output(slot, llvm::StringRef(name));
  }
  /// Removes a slot and its uses; does nothing if the op does not have it.
  void remove_input(llvm::StringRef slot);
  void remove_output(llvm::StringRef slot);
  /// Adds a slot even if a slot of that name already exists; only the file readers need this.
  void add_slot(bool is_output, llvm::StringRef slot, llvm::ArrayRef<llvm::StringRef> names);
  /// Replaces every occurrence of a name in the input (output) slots; returns whether it occurred.
  bool replace_input(llvm::StringRef from, llvm::StringRef to);
  bool replace_output(llvm::StringRef from, llvm::StringRef to);

  /// Attributes in file order; valid until the op is edited.
  [[nodiscard]] llvm::ArrayRef<Attr> attrs() const {
    return attrs_ == nullptr ? llvm::ArrayRef<Attr>() : llvm::ArrayRef<Attr>(*attrs_);
  }
  /// The value; null if the op does not set the attribute, even if its schema has a default.
  [[nodiscard]] const AttrValue* find_attr(llvm::StringRef name) const;
  [[nodiscard]] bool has_attr(llvm::StringRef name) const { return find_attr(name) != nullptr; }
  /// Sets or replaces an attribute. The kind is not compared with the schema.
  Op& set_attr(llvm::StringRef name, AttrValue value);
  /// Shorthands for the most common kinds.
  Op& set_int(llvm::StringRef name, int32_t v) { return set_attr(name, AttrValue::of_int(v)); }
  Op& set_bool(llvm::StringRef name, bool v) { return set_attr(name, AttrValue::of_bool(v)); }
  Op& set_float(llvm::StringRef name, float v) { return set_attr(name, AttrValue::of_float(v)); }
  Op& set_string(llvm::StringRef name, std::string v) {
    return set_attr(name, AttrValue::of_string(std::move(v)));
  }
  Op& set_strings(llvm::StringRef name, std::vector<std::string> v) {
    return set_attr(name, AttrValue::of_strings(std::move(v)));
  }
  /// Does nothing if the op does not set the attribute.
  void remove_attr(llvm::StringRef name);
  /// Adds an attribute even if an attribute of that name exists; only the file readers need this.
  void add_attr(Attr attr);

  /// Target flag of old inference programs; absent in most ops.
  [[nodiscard]] std::optional<bool> is_target() const { return is_target_; }
  void set_is_target(std::optional<bool> value);
  /// Wire bytes of fields that the format does not define; null if none.
  [[nodiscard]] const std::shared_ptr<const std::string>& unknown() const { return unknown_; }
  void set_unknown(std::shared_ptr<const std::string> bytes);

  /// Wire bytes that this op was read from; empty after an edit.
  [[nodiscard]] llvm::StringRef wire() const { return wire_; }

  /// True if this op precedes the other in their common block. Cost: O(1) amortised.
  [[nodiscard]] bool comes_before(const Op& other) const;
  /// Location for an error: block, op index, type and the user's source line. Cost: O(ops of the
  /// block).
  [[nodiscard]] Location location() const;

 private:
  friend class Block;
  Op(Block* block, NameId type) : block_(block), type_(type) {}
  /// Marks op and program as edited: the op's wire bytes are dropped.
  void touch();
  Op& set_slot(bool is_output, llvm::StringRef slot, llvm::ArrayRef<llvm::StringRef> names);
  void remove_slot(bool is_output, llvm::StringRef slot);
  bool replace_arg(bool is_output, llvm::StringRef from, llvm::StringRef to);
  /// The attributes for writing; copies them first if another op shares them.
  std::vector<Attr>& own_attrs();

  Block* block_;  ///< owner
  NameId type_;   ///< in the name table of the program
  /// Grows along the block; see Block::assign_order().
  uint64_t order_ = 0;
  llvm::SmallVector<Slot, 3> inputs_;
  llvm::SmallVector<Slot, 2> outputs_;
  std::shared_ptr<std::vector<Attr>> attrs_;  // shared with copies of the op until one is edited
  std::optional<bool> is_target_;             ///< as in the file
  std::shared_ptr<const std::string> unknown_;
  llvm::StringRef wire_;  ///< points into the file that the program keeps
};

/// First frame of the op's op_callstack that is not in the framework itself ("File \"net.py\", line
/// 12"); the first frame if all are in the framework; empty if the op has none.
std::string source_line(const Op& op);

}  // namespace millrace
