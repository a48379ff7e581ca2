#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLFunctionalExtras.h>

#include "executor/overlap/groups.h"
#include "executor/overlap/lanes.h"
#include "executor/steps/step.h"
#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "kernels/device.h"

namespace millrace::executor {

/// The groups of a block's steps that run in parallel, each step on one thread.
///
/// The groups are chosen before the first run. The first run in planned memory then records the
/// memory of every argument of a group and which inputs a kernel converts to another layout; the
/// dependencies follow from that. Later runs in which the arguments of a group are unchanged run it
/// in parallel. Other runs execute its steps one after another, but also on one thread each, so all
/// runs give the same bits. If shapes change repeatedly, groups are given up.
///
/// Thread-safety: one run at a time.
class Overlap {
 public:
  /// Runs one step on a device; calls for different steps may be concurrent.
  using RunStep = llvm::function_ref<Status(size_t step, kernels::CpuDevice& device)>;

  explicit Overlap(int threads);
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;
  ~Overlap();

  /// Chooses groups for steps with these estimates. Called once.
  void choose(llvm::ArrayRef<Step> steps, llvm::ArrayRef<StepWork> work);
  [[nodiscard]] bool has_chosen() const { return has_chosen_; }
  [[nodiscard]] llvm::ArrayRef<Group> groups() const { return groups_; }
  /// The group of a step; -1: none.
  [[nodiscard]] int32_t group_of(size_t step) const {
    return group_of_.empty() ? -1 : group_of_[step];
  }
  /// The device for which kernels of groups are compiled; it has one thread.
  [[nodiscard]] kernels::CpuDevice& device() { return *devices_.front(); }
  /// For each step, the last step until which memory last used there is kept, so that steps of a
  /// group need not wait for each other's memory.
  [[nodiscard]] std::vector<int32_t> holds() const;

  /// Runs the steps of a group.
  /// \param all            the device whose threads they share
  /// \param memory_planned temporaries have the same memory in the next run
  Status run(size_t group, llvm::ArrayRef<Step> steps, Value* const* table, kernels::CpuDevice& all,
             bool memory_planned, RunStep run_step);
  /// True if there are no groups, or if arguments of one had to be recorded too often; the caller
  /// then drops this object.
  [[nodiscard]] bool is_useless() const;

 private:
  struct Prepared;
  Status run_in_turn(const Group& group, RunStep run_step);
  Status note(size_t group, llvm::ArrayRef<Step> steps, Value* const* table, RunStep run_step);

  bool has_chosen_ = false;
  std::vector<Group> groups_;
  std::vector<int32_t> group_of_;
  std::vector<std::unique_ptr<kernels::CpuDevice>> devices_;  // one per thread
  std::vector<std::unique_ptr<Prepared>> prepared_;           // one per group
};

}  // namespace millrace::executor
