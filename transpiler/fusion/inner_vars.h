#pragma once

#include <string>
#include <vector>

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/StringRef.h>

#include "framework/program.h"

namespace millrace::transpiler {

/// The vars of block 0 that exist only to pass a value between its ops, so that a fusion may remove
/// them: dense tensors that are neither persistable nor kept, are mentioned by no other block and
/// by no attribute, and have one writer, which stands before all readers.
///
/// Cost: O(program) to make; a question O(uses of the var). Edits of block 0 are seen.
class InnerVars {
 public:
  /// \param keep  names of vars that must stay
  InnerVars(Program& program, const std::vector<std::string>& keep);

  [[nodiscard]] Block& block() const { return block_; }
  [[nodiscard]] bool contains(llvm::StringRef name) const;
  /// The op that writes an inner var; null for other vars.
  [[nodiscard]] Op* writer(llvm::StringRef name) const;
  /// The one op that reads an inner var, in one place; null for other vars.
  [[nodiscard]] Op* only_reader(llvm::StringRef name) const;
  /// True for a declared var of block 0 that no other block and no attribute mentions, and that is
  /// not kept.
  [[nodiscard]] bool is_plain(llvm::StringRef name) const;
  /// Erases an op, and the declarations of those inner vars that it wrote.
  /// \param but  var that stays declared; empty: none
  void erase(Op& op, llvm::StringRef but = {}) const;
  /// Takes the outputs from an op, and erases the declarations of the inner vars among them.
  void erase_outputs(Op& op, llvm::StringRef but = {}) const;

 private:
  Block& block_;
  llvm::DenseSet<NameId> outside_;
};

/// True for a declared tensor of f32; false for null.
bool is_f32(const Var* var);

/// True if no op between the two (the first included, the last not) writes what an op reads: the
/// inputs of `first` may then be read where `last` stands. first comes before last in a block.
bool inputs_unchanged(const Op& first, const Op& last);

/// Makes another op of this one: slots and attributes go, but for those that every op may have (its
/// role, device, and where the user wrote it).
void turn_into(Op& op, llvm::StringRef type);

/// Name in a slot that holds exactly one; empty otherwise.
llvm::StringRef single_input(const Op& op, llvm::StringRef slot);
llvm::StringRef single_output(const Op& op, llvm::StringRef slot);

}  // namespace millrace::transpiler
