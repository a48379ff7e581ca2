#pragma once

#include <functional>

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/program.h"

namespace millrace::transpiler {

/// What must stay when ops are removed.
struct NeedRules {
  /// True for ops that stay whatever happens to their outputs.
  std::function<bool(const Op&)> is_root;
  /// True for ops that are not kept just because another op reads what they write; empty: none.
  std::function<bool(const Op&)> not_by_outputs;
  /// Vars that must have their value at the end of the program.
  std::vector<std::string> targets;
  /// Vars whose value comes from outside: ops that write them are not needed for that.
  std::vector<std::string> feeds;
};

/// The ops of a program that some root or target depends on.
///
/// Walks each block from its end. An op is needed if it is a root, writes a name that is needed
/// later, or owns a block with a needed op; then all names it reads are needed. Blocks of one owner
/// may run repeatedly, so they are walked until nothing is added. Names are tracked for the whole
/// program, which can only keep too much: blocks of gradient ops read vars of forward blocks that
/// are not their ancestors.
class NeededOps {
 public:
  NeededOps(const Program& program, const NeedRules& rules);

  [[nodiscard]] bool contains(const Op& op) const { return needed_.contains(&op); }
  [[nodiscard]] bool empty() const { return needed_.empty(); }
  /// Erases the other ops; returns their number. Blocks that no op owns any more stay.
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
  llvm::SmallVector<bool, 8> walking_;  // by block: being walked now; guards against cycles
};

/// Indices of the blocks that an op owns through its attributes, in order, without indices that are
/// out of range.
llvm::SmallVector<int32_t, 2> owned_blocks(const Op& op);

}  // namespace millrace::transpiler
