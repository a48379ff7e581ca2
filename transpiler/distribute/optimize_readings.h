#pragma once

#include <utility>
#include <vector>

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/block.h"

namespace millrace::transpiler {

/// A value that an op reads, and the op that wrote it; null: persistent state or a feed.
struct Reading {
  llvm::StringRef var;
  Op* writer = nullptr;
};

/// An op of role Optimize and what it reads.
struct OptimizeMember {
  Op* op = nullptr;
  llvm::SmallVector<Reading, 4> readings;
  size_t outputs = 0;
  bool tainted = false;  ///< depends, directly or not, on values of the forward or backward part

  /// The reading of a var; without a writer if the op does not read the var.
  [[nodiscard]] Reading reading_of(llvm::StringRef var) const;
};

/// Records which op wrote each value that the optimize part of a block reads, including ops that
/// update in place. Built in one pass over the block; valid until the block is edited.
class OptimizeReadings {
 public:
  explicit OptimizeReadings(Block& block);

  /// In program order.
  [[nodiscard]] llvm::ArrayRef<OptimizeMember> members() const { return members_; }
  /// Index of an op among the members; UINT32_MAX if it is not a member or null.
  [[nodiscard]] uint32_t index_of(const Op* op) const;
  /// Whether the value depends, directly or not, on the forward or backward part.
  [[nodiscard]] bool is_tainted(const Reading& reading) const;
  /// Reads by non-members of values that members wrote; for scheduler ops, all their reads.
  [[nodiscard]] llvm::ArrayRef<std::pair<Op*, Reading>> outside_readers() const { return outside_; }

 private:
  std::vector<OptimizeMember> members_;
  llvm::DenseMap<const Op*, uint32_t> index_;
  std::vector<std::pair<Op*, Reading>> outside_;
};

}  // namespace millrace::transpiler
