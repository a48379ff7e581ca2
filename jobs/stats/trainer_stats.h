#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "executor/observer.h"
#include "framework/base/status.h"
#include "ps/transport/tracing.h"

namespace millrace::jobs {

/// What one trainer of a job has done, and its time by activity.
struct TrainerStats {
  int trainer = 0;
  std::string loss_name;       ///< empty if no single number was fetched
  std::vector<double> losses;  ///< one per step
  int64_t steps = 0;
  int64_t examples = 0;
  double seconds = 0;          ///< all steps, wall-clock time
  double compute_seconds = 0;  ///< ops without communication, and time between ops
  double send_seconds = 0;     ///< sending gradients to the servers
  double wait_seconds = 0;     ///< waiting for values and for other trainers
};

/// The contents of the file that run-program --stats writes.
std::string stats_json(const TrainerStats& stats);
/// Parses such a file. Errors: kInvalidData naming the member.
StatusOr<TrainerStats> parse_stats_json(const std::string& text);

/// Measures the time of ops that send (send, split_byref and the like) and of ops that wait (recv,
/// barriers, lookups on servers). Thread-safety: one run at a time.
class TransferClock final : public executor::OpObserver {
 public:
  void before(const executor::CompiledOp& compiled) override;
  Status after(const executor::CompiledOp& compiled, Value* const* table) override;
  /// Records ops there as well; null: not recorded.
  void note_ops(ps::CallTrace* trace) { trace_ = trace; }
  [[nodiscard]] double send_seconds() const { return send_; }
  [[nodiscard]] double wait_seconds() const { return wait_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
  ps::CallTrace* trace_ = nullptr;
  // atomic, because the metrics thread reads them while steps run
  std::atomic<double> send_{0};
  std::atomic<double> wait_{0};
};

}  // namespace millrace::jobs
