#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "framework/program.h"
#include "ps/table/table.h"

namespace millrace::ps {

/// Learning rate as a function of the step, counted from 0.
using RateOfStep = std::function<StatusOr<float>(int64_t step)>;

/// A rate that a program computes: runs its block 0 with var `counter` set to the step; var `rate`
/// is the result. Errors: those of preparing the program.
StatusOr<RateOfStep> program_rate(const Program& program, std::string counter, std::string rate);

/// Counts the steps of all trainers and computes the learning rate of other tables from them
/// (TensorTable, GlobalStepTable): rate = rate_of(sum of steps - 1).
class TensorTable final : public Table {
 public:
  /// \param rate_of  empty: only count steps
  TensorTable(int trainers, RateOfStep rate_of);

  /// The rate, for Table::share_rate(); 1 before the first step.
  [[nodiscard]] const std::atomic<float>* rate() const { return &rate_; }
  /// Adds steps of a trainer. Errors: kInvalidArgument for an unknown trainer; those of the rate.
  Status count(int trainer, int64_t steps);
  [[nodiscard]] int64_t steps() const;

  [[nodiscard]] std::string_view table_class() const override { return "GlobalStepTable"; }
  /// The number of steps as i64.
  Status pull(PullKind kind, const TableCall& call, Value& reply) override;
  /// Argument: steps as i64.
  Status push(PushKind kind, const TableCall& call) override;
  /// The steps of each trainer.
  StatusOr<TableState> state() override;
  Status set_state(const TableState& state) override;
  [[nodiscard]] int64_t size() const override { return 1; }
  [[nodiscard]] int64_t memory_bytes() const override;

 private:
  /// Computes the rate of the steps so far; mutex_ must be held.
  Status update_rate();

  const RateOfStep rate_of_;
  mutable std::mutex mutex_;
  std::vector<int64_t> steps_;  ///< by trainer
  std::atomic<float> rate_ = 1;
};

}  // namespace millrace::ps
