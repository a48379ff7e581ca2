#pragma once

#include <utility>
#include <vector>

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/block.h"

namespace millrace::transpiler {

/// One value that an op reads, and the op that has written it; null: state, or a feed.
struct Reading {
  llvm::StringRef var;
  Op* writer = nullptr;
};

/// An op of role Optimize and what it reads.
struct OptimizeMember {
  Op* op = nullptr;
  llvm::SmallVector<Reading, 4> readings;
  size_t outputs = 0;
  bool tainted = false;  ///< computed, directly or not, from values of the forward or backward part

  /// The reading of a var; one without a writer if the op does not read it.
  [[nodiscard]] Reading reading_of(llvm::StringRef var) const;
};

/// Which op has written each value that the optimize part of a block reads, in place or not. Found
/// in one walk; valid until the block is edited.
class OptimizeReadings {
 public:
  explicit OptimizeReadings(Block& block);

  /// In program order.
  [[nodiscard]] llvm::ArrayRef<OptimizeMember> members() const { return members_; }
  /// Place of an op among the members; UINT32_MAX if it is none, or null.
  [[nodiscard]] uint32_t index_of(const Op* op) const;
  /// Whether the value comes, directly or not, from the forward or backward part.
  [[nodiscard]] bool is_tainted(const Reading& reading) const;
  /// Readings by ops that are no members, of what members have written; of scheduler ops all
  /// readings.
  [[nodiscard]] llvm::ArrayRef<std::pair<Op*, Reading>> outside_readers() const { return outside_; }

 private:
  std::vector<OptimizeMember> members_;
  llvm::DenseMap<const Op*, uint32_t> index_;
  std::vector<std::pair<Op*, Reading>> outside_;
};

}  // namespace millrace::transpiler
