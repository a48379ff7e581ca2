#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/block_runner.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "kernels/device.h"
#include "ps/server/var_guards.h"

namespace millrace::ps {

/// How a block merges the values of the trainers: it begins with `sum` over one slot per trainer,
/// usually followed by `scale` with their number.
struct Merge {
  std::vector<std::string> slots;  ///< by trainer
  std::string out;
  bool averages = false;  ///< the second op divides the sum by the number of trainers
};

/// Finds the merge at the start of a block. \returns false if there is none for that many trainers
bool find_merge(const Block& block, int trainers, Merge& merge);

/// A compiled block of a server program. It has a separate device and is bound to the server's
/// scope once. Thread-safety: run() may be called from any thread; runs wait for each other.
class ServerBlock {
 public:
  /// \param block, scope, guards  must outlive the result
  /// Errors: those of compilation, with the op's location.
  static StatusOr<std::unique_ptr<ServerBlock>> compile(const executor::Runtime& runtime,
                                                        const Block& block, Scope& scope,
                                                        const VarGuards& guards, int threads,
                                                        uint64_t seed);
  [[nodiscard]] const Block& block() const { return block_; }

  /// Locks all vars that the block uses.
  [[nodiscard]] BlockLock lock() const { return BlockLock(needs_); }
  /// Runs all ops; the caller must hold lock(). Errors: those of the ops, with their location.
  Status run();
  /// Runs only the first `count` ops, or only the ops after them.
  Status run_first(size_t count);
  Status run_after(size_t count);
  /// The value of a name in the block; null for names that the block does not use.
  [[nodiscard]] Value* find(llvm::StringRef name) const { return runner_->find(name); }

 private:
  ServerBlock(const Block& block, Scope& scope, int threads, uint64_t seed)
      : block_(block), scope_(&scope), device_(threads, seed) {}

  const Block& block_;
  Scope scope_;  ///< holds the block's own vars
  kernels::CpuDevice device_;
  std::unique_ptr<executor::BlockRunner> runner_;
  llvm::ArrayRef<VarGuards::Need> needs_;
};

}  // namespace millrace::ps
