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

/// Runs steps in parallel, in any order that their dependencies allow. Each step has a counter of
/// steps that it still waits for. The thread that brings it to zero runs the step next, or hands it
/// to an idle thread. Uses no locks and, once constructed, allocates no memory.
///
/// Thread-safety: one run at a time.
class Lanes {
 public:
  /// \param dependencies  of the steps, numbered from 0
  explicit Lanes(const Dependencies& dependencies);
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;
  ~Lanes() = default;

  /// Calls run_step(lane, step) once per step, on the threads of the device; calls of one lane are
  /// sequential. After an error no further step begins.
  /// \returns the error of the step that failed; if there are several, that of the first step
  Status run(kernels::CpuDevice& device, int lanes,
             llvm::function_ref<Status(int lane, size_t step)> run_step);

 private:
  void work(int lane, llvm::function_ref<Status(int lane, size_t step)> run_step);
  int32_t take();
  void offer(int32_t step);
  int32_t finish(int32_t step);
  void fail(int32_t step, Status status);

  // Constant after construction.
  std::vector<int32_t> waits_for_;
  std::vector<int32_t> next_from_;  // start in next_ of the steps that wait for each step
  std::vector<int32_t> next_;       // in order
  std::vector<int32_t> roots_;

  // State of one run.
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
