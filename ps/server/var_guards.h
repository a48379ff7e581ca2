#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringRef.h>

#include "framework/program.h"

namespace millrace::ps {

/// Locks of a server's vars: every block has a lock for the vars that only it uses, and one lock
/// covers all other vars. A running block holds the locks of all vars that it reads or writes, so
/// that a var is never seen half-written.
///
/// Immutable after construction, except for the locks. Thread-safety: any thread.
class VarGuards {
 public:
  /// \param blocks  blocks of the program that are run, including sub-blocks that their ops name
  VarGuards(const Program& program, llvm::ArrayRef<int32_t> blocks);

  /// The lock of a var; hold it shared to read the var, exclusively to write it.
  [[nodiscard]] std::shared_mutex& of(llvm::StringRef var) const;

  /// Locks every lock exclusively.
  [[nodiscard]] std::vector<std::unique_lock<std::shared_mutex>> lock_all() const;

  /// One of the locks of a block. Locks are always taken in the same order, which prevents
  /// deadlocks.
  struct Need {
    std::shared_mutex* mutex = nullptr;
    bool exclusive = false;
  };
  /// The locks of a block that was given to the constructor.
  [[nodiscard]] llvm::ArrayRef<Need> needs(int32_t block) const;

 private:
  // 0 is the lock of vars that several blocks use; 1 + i is the lock of the i-th block.
  std::vector<std::unique_ptr<std::shared_mutex>> mutexes_;
  llvm::StringMap<size_t> guard_of_;
  std::vector<int32_t> blocks_;
  std::vector<std::vector<Need>> needs_;
};

/// Holds the locks of a block for its lifetime.
class BlockLock {
 public:
  explicit BlockLock(llvm::ArrayRef<VarGuards::Need> needs);
  BlockLock(const BlockLock&) = delete;
  BlockLock& operator=(const BlockLock&) = delete;
  ~BlockLock();

 private:
  llvm::ArrayRef<VarGuards::Need> needs_;
};

}  // namespace millrace::ps
