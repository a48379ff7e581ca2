#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLFunctionalExtras.h>

#include "executor/overlap/groups.h"
#include "executor/overlap/lanes.h"
#include "executor/step.h"
#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "kernels/device.h"

namespace millrace::executor {

/// The groups of a block's steps that run side by side, each step on one thread.
///
/// Which steps those are is settled before the first run. The first run in planned memory then
/// notes where every argument of a group stands and which inputs a kernel brings into another
/// layout; from that follow the dependencies. Later runs that find the arguments of a group as they
/// were then run it side by side, others one step after another, on one thread all the same: so all
/// runs give the same bits. Where shapes change again and again, groups are given up.
///
/// Thread-safety: one run at a time.
class Overlap {
 public:
  /// Runs one step on a device; calls for different steps may come at once.
  using RunStep = llvm::function_ref<Status(size_t step, kernels::CpuDevice& device)>;

  explicit Overlap(int threads);
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;
  ~Overlap();

  /// Chooses groups for steps of such work. Called once.
  void choose(llvm::ArrayRef<Step> steps, llvm::ArrayRef<StepWork> work);
  [[nodiscard]] bool has_chosen() const { return has_chosen_; }
  [[nodiscard]] llvm::ArrayRef<Group> groups() const { return groups_; }
  /// Which group a step is in; -1: in none.
  [[nodiscard]] int32_t group_of(size_t step) const {
    return group_of_.empty() ? -1 : group_of_[step];
  }
  /// What kernels of groups are made for: a device with one thread.
  [[nodiscard]] kernels::CpuDevice& device() { return *devices_.front(); }
  /// For each step the last one until which the memory stays that is used there last, so that steps
  /// of a group need not wait for each other's memory.
  [[nodiscard]] std::vector<int32_t> holds() const;

  /// Runs the steps of a group.
  /// \param all            the device whose threads they share
  /// \param memory_planned temporaries stand where they will stand in the next run, too
  Status run(size_t group, llvm::ArrayRef<Step> steps, Value* const* table, kernels::CpuDevice& all,
             bool memory_planned, RunStep run_step);
  /// True if there are no groups, or one had to be noted too often; the caller then drops this
  /// object.
  [[nodiscard]] bool is_useless() const;

 private:
  struct Prepared;
  Status run_in_turn(const Group& group, RunStep run_step);
  Status note(size_t group, llvm::ArrayRef<Step> steps, Value* const* table, RunStep run_step);

  bool has_chosen_ = false;
  std::vector<Group> groups_;
  std::vector<int32_t> group_of_;
  std::vector<std::unique_ptr<kernels::CpuDevice>> devices_;  // one a thread
  std::vector<std::unique_ptr<Prepared>> prepared_;           // one a group
};

}  // namespace millrace::executor
