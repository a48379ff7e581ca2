#pragma once

#include <atomic>

#include "ps/table/table.h"

namespace millrace::ps {

/// The learning rate that the tables of a job share and that trainers set.
class RateTable final : public Table {
 public:
  explicit RateTable(float rate) : rate_(rate) {}

  /// For Table::share_rate(). The learning rates of the tables should be 1, because they are
  /// multiplied.
  [[nodiscard]] const std::atomic<float>* rate() const { return &rate_; }

  [[nodiscard]] std::string_view table_class() const override { return "LearningRate"; }
  StatusOr<TableState> state() override;
  Status set_state(const TableState& state) override;
  /// The rate as f32.
  Status pull(PullKind kind, const TableCall& call, Value& reply) override;
  /// Argument: the new rate, f32. Errors: kInvalidArgument for a rate that is not finite.
  Status push(PushKind kind, const TableCall& call) override;
  [[nodiscard]] int64_t size() const override { return 1; }
  [[nodiscard]] int64_t memory_bytes() const override { return sizeof(rate_); }

 private:
  std::atomic<float> rate_;
};

}  // namespace millrace::ps
