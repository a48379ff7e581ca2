#pragma once

#include <string>
#include <vector>

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/StringRef.h>

#include "framework/program.h"

namespace millrace::transpiler {

/// The vars of block 0 that exist only to pass a value between its ops, so that a fusion may remove
/// them: dense tensors that are neither persistable nor kept nor fetched, are mentioned by no other
/// block and no attribute, and have one writer, which is before all readers.
///
/// Cost: O(program) to construct; O(uses of the var) per query. Edits of block 0 are taken into
/// account.
class InnerVars {
 public:
  /// \param keep  names of vars that must stay
  InnerVars(Program& program, const std::vector<std::string>& keep);

  [[nodiscard]] Block& block() const { return block_; }
  [[nodiscard]] bool contains(llvm::StringRef name) const;
  /// The op that writes an inner var; null for other vars.
  [[nodiscard]] Op* writer(llvm::StringRef name) const;
  /// The one op that reads an inner var, once; null for other vars or if there are several reads.
  [[nodiscard]] Op* only_reader(llvm::StringRef name) const;
  /// True for a declared var of block 0 that no other block and no attribute mentions, and that is
  /// not kept.
  [[nodiscard]] bool is_plain(llvm::StringRef name) const;
  /// True for a declared var of block 0 that is persistable, kept, or mentioned by another block or
  /// an attribute.
  [[nodiscard]] bool is_needed_after(llvm::StringRef name) const;
  /// Erases an op, and the declarations of those inner vars that it wrote.
  /// \param but  var that stays declared; empty: none
  void erase(Op& op, llvm::StringRef but = {}) const;
  /// Removes all outputs of an op, and erases the declarations of the inner vars among them.
  void erase_outputs(Op& op, llvm::StringRef but = {}) const;

 private:
  Block& block_;
  llvm::DenseSet<NameId> outside_;
};

/// True for a declared tensor of f32; false for null.
bool is_f32(const Var* var);

/// True if no op from `first` (inclusive) to `last` (exclusive) writes an input of `first`, so that
/// these inputs may be read at the position of `last`. `first` comes before `last` in a block.
bool inputs_unchanged(const Op& first, const Op& last);

/// True if an op of another block may write a var of the block: an op that owns blocks need not
/// name what they write.
bool is_written_elsewhere(const Block& block, llvm::StringRef name);

/// Changes an op into one of another type: removes slots and attributes, except for those that
/// every op may have (its role, device, and the user's call stack).
void turn_into(Op& op, llvm::StringRef type);

/// The name in a slot that holds exactly one name; empty otherwise.
llvm::StringRef single_input(const Op& op, llvm::StringRef slot);
llvm::StringRef single_output(const Op& op, llvm::StringRef slot);

}  // namespace millrace::transpiler
