#pragma once

#include <functional>

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/program.h"

namespace millrace::transpiler {

/// What must stay when ops are removed.
struct NeedRules {
  /// Op that stays whatever happens to its outputs.
  std::function<bool(const Op&)> is_root;
  /// Op that does not stay just because somebody reads what it writes; empty: there is none.
  std::function<bool(const Op&)> not_by_outputs;
  /// Vars that must have their value at the end.
  std::vector<std::string> targets;
  /// Vars whose value comes from outside: what writes them is not needed for it.
  std::vector<std::string> feeds;
};

/// The ops of a program that some root or target depends on.
///
/// Walks each block from its end: an op is needed if it is a root, writes a name that is needed
/// behind it, or owns a block with a needed op; then all names it reads are needed. Blocks of one
/// owner may run again and again, so they are walked until nothing is added. Names count program
/// wide, which can only keep too much: blocks of gradient ops read vars of forward blocks that are
/// not their ancestors.
class NeededOps {
 public:
  NeededOps(const Program& program, const NeedRules& rules);

  [[nodiscard]] bool contains(const Op& op) const { return needed_.contains(&op); }
  [[nodiscard]] bool empty() const { return needed_.empty(); }
  /// Erases the other ops; says how many there were. Blocks that no op owns any more stay.
  size_t erase_others(Program& program) const;

 private:
  bool walk(const Block& block);
  bool visit(const Op& op);
  bool walk_owned_blocks(const Op& op);
  bool add_name(NameId name);

  const Program& program_;
  const NeedRules& rules_;
  llvm::DenseSet<NameId> feeds_;
  llvm::DenseSet<NameId> names_;
  llvm::DenseSet<const Op*> needed_;
  llvm::SmallVector<bool, 8> walking_;  // by block: on the way from the root, against cycles
};

/// Indices of the blocks an op owns through its attributes, in order; those out of range are left
/// out.
llvm::SmallVector<int32_t, 2> owned_blocks(const Op& op);

}  // namespace millrace::transpiler
