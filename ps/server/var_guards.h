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

/// Who may touch which var of a server: every block has a lock for the vars that belong to it
/// alone, and one lock covers the rest. A block that runs holds the locks of everything it reads or
/// writes, so a var is never seen half-written.
///
/// Immutable after construction, but for the locks. Thread-safety: any thread.
class VarGuards {
 public:
  /// \param blocks  blocks of the program that are run, each with the sub-blocks its ops name
  VarGuards(const Program& program, llvm::ArrayRef<int32_t> blocks);

  /// Lock of a var; to be held shared to read it, exclusively to write it.
  [[nodiscard]] std::shared_mutex& of(llvm::StringRef var) const;

  /// Every lock there is.
  [[nodiscard]] std::vector<std::unique_lock<std::shared_mutex>> lock_all() const;

  /// All locks that a block takes, in the one order that keeps from dead-locks.
  struct Need {
    std::shared_mutex* mutex = nullptr;
    bool exclusive = false;
  };
  /// For one of the blocks given to the constructor.
  [[nodiscard]] llvm::ArrayRef<Need> needs(int32_t block) const;

 private:
  // 0 is the lock of what several blocks touch; 1 + i that of the i-th block.
  std::vector<std::unique_ptr<std::shared_mutex>> mutexes_;
  llvm::StringMap<size_t> guard_of_;
  std::vector<int32_t> blocks_;
  std::vector<std::vector<Need>> needs_;
};

/// Holds the locks of a block as long as it lives.
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
