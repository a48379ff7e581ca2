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

/// How a block merges what the trainers send: it begins with `sum` over a slot a trainer, and
/// usually `scale` by their number.
struct Merge {
  std::vector<std::string> slots;  ///< by trainer
  std::string out;
  bool averages = false;  ///< the second op scales the sum
};

/// Finds the merge at the begin of a block. False if there is none for that many trainers.
bool find_merge(const Block& block, int trainers, Merge& merge);

/// A block of a server program, compiled to run by itself: with a device of its own, bound to the
/// server's scope once. Thread-safety: run() may be called from any thread, runs wait for each
/// other.
class ServerBlock {
 public:
  /// \param block, scope, guards  must outlive the result
  /// Errors: those of compilation, with the op's place.
  static StatusOr<std::unique_ptr<ServerBlock>> compile(const executor::Runtime& runtime,
                                                        const Block& block, Scope& scope,
                                                        const VarGuards& guards, int threads,
                                                        uint64_t seed);
  [[nodiscard]] const Block& block() const { return block_; }

  /// Takes the locks of the block.
  [[nodiscard]] BlockLock lock() const { return BlockLock(needs_); }
  /// Runs all ops; the caller holds lock(). Errors: those of the ops, with their place.
  Status run();
  /// Runs the first `count` ops only, or all but these.
  Status run_first(size_t count);
  Status run_behind(size_t count);
  /// The value that a name stands for in the block; null for names that it does not use.
  [[nodiscard]] Value* find(llvm::StringRef name) const { return runner_->find(name); }

 private:
  ServerBlock(const Block& block, Scope& scope, int threads, uint64_t seed)
      : block_(block), scope_(&scope), device_(threads, seed) {}

  const Block& block_;
  Scope scope_;  ///< of the block's own vars
  kernels::CpuDevice device_;
  std::unique_ptr<executor::BlockRunner> runner_;
  llvm::ArrayRef<VarGuards::Need> needs_;
};

}  // namespace millrace::ps
