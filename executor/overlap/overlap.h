#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLFunctionalExtras.h>

#include "executor/compiled_ops/compiled_op.h"
#include "executor/overlap/groups.h"
#include "executor/overlap/lanes.h"
#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "kernels/device.h"

namespace millrace::executor {

/// The groups of a block's ops that run in parallel, each op on one thread.
///
/// The groups are chosen before the first run. The first run in planned memory then records the
/// memory of every argument of a group and which inputs a kernel converts to another layout; the
/// dependencies follow from that. Later runs in which the arguments of a group are unchanged run it
/// in parallel. Other runs execute its ops one after another, but also on one thread each, so all
/// runs give the same bits. If shapes change repeatedly, groups are given up.
///
/// Thread-safety: one run at a time.
class Overlap {
 public:
  /// Runs one op on a device; calls for different ops may be concurrent.
  using RunOp = llvm::function_ref<Status(size_t compiled, kernels::CpuDevice& device)>;

  explicit Overlap(int threads);
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;
  ~Overlap();

  /// Chooses groups for ops with these estimates. Called once.
  void choose(llvm::ArrayRef<CompiledOp> compiled_ops, llvm::ArrayRef<OpWork> work);
  [[nodiscard]] bool has_chosen() const { return has_chosen_; }
  [[nodiscard]] llvm::ArrayRef<Group> groups() const { return groups_; }
  /// The group of an op; -1: none.
  [[nodiscard]] int32_t group_of(size_t compiled) const {
    return group_of_.empty() ? -1 : group_of_[compiled];
  }
  /// The device for which kernels of groups are compiled; it has one thread.
  [[nodiscard]] kernels::CpuDevice& device() { return *devices_.front(); }
  /// For each op, the last op until which memory last used there is kept, so that ops of a
  /// group need not wait for each other's memory.
  [[nodiscard]] std::vector<int32_t> holds() const;

  /// Runs the ops of a group.
  /// \param all            the device whose threads they share
  /// \param memory_planned temporaries have the same memory in the next run
  Status run(size_t group, llvm::ArrayRef<CompiledOp> compiled_ops, Value* const* table,
             kernels::CpuDevice& all, bool memory_planned, RunOp run_op);
  /// True if there are no groups, or if arguments of one had to be recorded too often; the caller
  /// then drops this object.
  [[nodiscard]] bool is_useless() const;

 private:
  struct Prepared;
  Status run_in_turn(const Group& group, RunOp run_op);
  Status note(size_t group, llvm::ArrayRef<CompiledOp> compiled_ops, Value* const* table,
              RunOp run_op);

  bool has_chosen_ = false;
  std::vector<Group> groups_;
  std::vector<int32_t> group_of_;
  std::vector<std::unique_ptr<kernels::CpuDevice>> devices_;  // one per thread
  std::vector<std::unique_ptr<Prepared>> prepared_;           // one per group
};

}  // namespace millrace::executor
