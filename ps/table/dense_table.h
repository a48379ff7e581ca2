#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ps/table/dense_updates.h"
#include "ps/table/initializer.h"
#include "ps/table/table.h"

namespace millrace::ps {

/// Settings of a dense table. Rules and defaults: spec/ps_runtime.md section 7; unlike in the
/// original, the betas and epsilon of adam are set by the user.
struct DenseTableOptions {
  enum class Rule : uint8_t { kSgd, kAdam, kAdamD2Sum, kSum, kSummary };
  int table_id = 0;
  std::string name;
  int64_t elements = 0;  ///< of this server's range
  Rule rule = Rule::kSgd;
  Initializer initializer;  ///< of the parameters
  uint64_t seed = 0;
  float learning_rate = 0.01F;  ///< of sgd and adam; adam_d2sum: 5e-6 in the original
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float momentum = 0.99F;  ///< adam_d2sum
  float decay = 0.9999F;   ///< adam_d2sum
  /// If not empty, ops of a program update these ranges in place of the rule.
  std::vector<DenseUpdate> updates;
  /// Pushes are accumulated, and apply_pending() applies their mean.
  bool sync = false;
};

/// "sgd", "adam", "adam_d2sum", "sum", "summary". Errors: kInvalidArgument.
StatusOr<DenseTableOptions::Rule> parse_dense_rule(std::string_view name);

/// One server's range of all dense parameters of a job, in one row of floats (MemoryDenseTable).
///
/// Each block of elements has a lock: a pull concurrent with a push may see some blocks before and
/// others after the push, but never a partial update of an element.
class DenseTable final : public Table {
 public:
  /// Errors: kInvalidArgument for a negative size, or updates of another size; kResource.
  static StatusOr<std::unique_ptr<DenseTable>> create(DenseTableOptions options);

  [[nodiscard]] const DenseTableOptions& options() const { return options_; }
  /// Copies parameters; the span must have elements() floats.
  Status pull(std::span<float> parameters) const;
  /// Pushes a gradient for every element. Pushes to sync tables wait for apply_pending().
  Status push(std::span<const float> grads, int trainer = 0);
  /// Replaces the parameters, which then count as set; keeps the optimizer state.
  Status set(std::span<const float> parameters);
  /// Adds up pushes in the order of trainers, so that results are bitwise equal regardless of the
  /// order of arrival.
  Status apply_pending();
  /// True if the parameters are those of a job: after set(), note_set() or set_state(). A server
  /// that has none of the elements needs none.
  [[nodiscard]] bool is_set() const { return param_.empty() || is_set_; }
  /// The parameters were written by with_columns().
  void note_set() { is_set_ = true; }
  /// One tensor for each column.
  StatusOr<TableState> state() override;
  Status set_state(const TableState& state) override;

  using Column = DenseColumn;
  /// Calls the function with all columns; blocks other changes meanwhile.
  Status with_columns(const std::function<Status(std::span<const Column>)>& body);

  [[nodiscard]] std::string_view table_class() const override { return "MemoryDenseTable"; }
  /// No arguments.
  Status pull(PullKind kind, const TableCall& call, Value& reply) override;
  /// Arguments: gradients, or parameters with "set".
  Status push(PushKind kind, const TableCall& call) override;
  [[nodiscard]] int64_t size() const override { return options_.elements; }
  [[nodiscard]] int64_t memory_bytes() const override;
  void share_rate(const std::atomic<float>* rate) override { rate_ = rate; }

 private:
  static constexpr size_t kBlock = 16'384;
  explicit DenseTable(DenseTableOptions options) : options_(std::move(options)) {}
  Status check_size(size_t elements) const;
  Status apply(std::span<const float> grads);
  void apply_block(size_t begin, std::span<const float> grads, float rate, float adam_epsilon);

  DenseTableOptions options_;
  std::vector<float> param_;
  std::vector<float> first_;               ///< first moment; velocity of adam_d2sum
  std::vector<float> second_;              ///< second moment; sum of squares of adam_d2sum
  std::vector<float> third_;               ///< sum of weights of adam_d2sum
  std::vector<float> powers_;              ///< of beta1 and beta2
  mutable std::vector<std::mutex> locks_;  ///< one per block
  struct PendingPushes {
    std::vector<float> sum;
    int64_t pushes = 0;
  };
  std::atomic<bool> is_set_ = false;
  std::unique_ptr<DenseUpdates> updates_;  ///< null: by the rule
  mutable std::mutex push_mutex_;          ///< guards powers_ and pending_
  std::map<int, PendingPushes> pending_;   ///< by trainer
  const std::atomic<float>* rate_ = nullptr;
};

}  // namespace millrace::ps
