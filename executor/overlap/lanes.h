#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLFunctionalExtras.h>

#include "executor/overlap/dependencies.h"
#include "framework/base/status.h"
#include "kernels/device.h"

namespace millrace::executor {

/// Runs steps side by side, in any order that their dependencies allow. Each step has a counter of
/// those that it still waits for; who brings it to zero runs the step next, or hands it to a thread
/// that has nothing to do. No locks and, once made, no memory is taken.
///
/// Thread-safety: one run at a time.
class Lanes {
 public:
  /// \param dependencies  of the steps, which are counted from 0 here
  explicit Lanes(const Dependencies& dependencies);
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;
  ~Lanes() = default;

  /// Calls run_step(lane, step) once a step, on the threads of the device; calls of one lane come
  /// one after another. After an error no further step begins.
  /// \returns the error of the step that failed; of several, of that which comes first
  Status run(kernels::CpuDevice& device, int lanes,
             llvm::function_ref<Status(int lane, size_t step)> run_step);

 private:
  void work(int lane, llvm::function_ref<Status(int lane, size_t step)> run_step);
  int32_t take();
  void offer(int32_t step);
  int32_t finish(int32_t step);
  void fail(int32_t step, Status status);

  // Never changes after the constructor.
  std::vector<int32_t> waits_for_;
  std::vector<int32_t> next_from_;  // where the steps begin that wait for this one
  std::vector<int32_t> next_;       // in order
  std::vector<int32_t> roots_;

  // Of one run.
  std::unique_ptr<std::atomic<int32_t>[]> waiting_;
  std::unique_ptr<std::atomic<int32_t>[]> queue_;  // -1: not written yet
  std::atomic<int32_t> taken_{0};
  std::atomic<int32_t> offered_{0};
  std::atomic<int32_t> done_{0};
  std::atomic<bool> failed_{false};
  std::atomic_flag failing_ = ATOMIC_FLAG_INIT;
  int32_t failed_step_ = -1;
  Status failure_ = Ok();
};

}  // namespace millrace::executor
