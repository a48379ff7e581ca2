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

/// Runs ops in parallel, in any order that their dependencies allow. Each op has a counter of
/// ops that it still waits for. The thread that brings it to zero runs the op next, or hands it
/// to an idle thread. Uses no locks and, once constructed, allocates no memory.
///
/// Thread-safety: one run at a time.
class Lanes {
 public:
  /// \param dependencies  of the ops, numbered from 0
  explicit Lanes(const Dependencies& dependencies);
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;
  ~Lanes() = default;

  /// Calls run_op(lane, op) once per op, on the threads of the device; calls of one lane are
  /// sequential. After an error no further op begins.
  /// \returns the error of the op that failed; if there are several, that of the first op
  Status run(kernels::CpuDevice& device, int lanes,
             llvm::function_ref<Status(int lane, size_t op)> run_op);

 private:
  void work(int lane, llvm::function_ref<Status(int lane, size_t op)> run_op);
  int32_t take();
  void offer(int32_t op);
  int32_t finish(int32_t op);
  void fail(int32_t op, Status status);

  // Constant after construction.
  std::vector<int32_t> waits_for_;
  std::vector<int32_t> next_from_;  // start in next_ of the ops that wait for each op
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
  int32_t failed_op_ = -1;
  Status failure_ = Ok();
};

}  // namespace millrace::executor
