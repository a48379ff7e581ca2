#include "ps/table/dense_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/base/errors.h"
#include "ps/table/state_parts.h"

namespace millrace::ps {
namespace {

using Rule = DenseTableOptions::Rule;

void step_adam(float* param, float* m, float* v, const float* grad, size_t count, float rate,
               float b1, float b2, float epsilon) {
  for (size_t i = 0; i < count; ++i) {
    m[i] = b1 * m[i] + (1 - b1) * grad[i];
    v[i] = b2 * v[i] + (1 - b2) * grad[i] * grad[i];
    param[i] -= rate * m[i] / (std::sqrt(v[i]) + epsilon);
  }
}

void step_adam_d2sum(float* param, float* velocity, float* squares, float* weights,
                     const float* grad, size_t count, float rate,
                     const DenseTableOptions& options) {
  for (size_t i = 0; i < count; ++i) {
    weights[i] = weights[i] * options.decay + 1;
    squares[i] = squares[i] * options.decay + grad[i] * grad[i];
    const float smooth = weights[i] * options.epsilon;
    const float scale = std::sqrt((weights[i] + smooth) / (squares[i] + smooth));
    velocity[i] = (velocity[i] + grad[i]) * options.momentum - grad[i];
    param[i] += rate * velocity[i] * scale;
  }
}

}  // namespace

StatusOr<Rule> parse_dense_rule(std::string_view name) {
  if (name == "sgd") return Rule::kSgd;
  if (name == "adam") return Rule::kAdam;
  if (name == "adam_d2sum") return Rule::kAdamD2Sum;
  if (name == "sum") return Rule::kSum;
  if (name == "summary") return Rule::kSummary;
  return InvalidArgument(
      "dense tables do not support optimizer '{}', expected one of sgd, adam, adam_d2sum, sum, "
      "summary",
      name);
}

StatusOr<std::unique_ptr<DenseTable>> DenseTable::create(DenseTableOptions options) {
  if (options.elements < 0)
    return InvalidArgument("table {} has {} elements, expected at least 0", options.table_id,
                           options.elements);
  auto table = std::unique_ptr<DenseTable>(new DenseTable(std::move(options)));
  const DenseTableOptions& made = table->options_;
  const auto count = static_cast<size_t>(made.elements);
  if (!made.updates.empty()) {
    int64_t updated = 0;
    for (const DenseUpdate& range : made.updates) updated += range.elements;
    if (updated != made.elements)
      return InvalidArgument("table {} has {} elements, but updates of {}", made.table_id,
                             made.elements, updated);
    table->updates_ = std::make_unique<DenseUpdates>(made.updates);
  }
  table->param_.resize(count);
  KeyedRandom random(made.seed ^ made.initializer.seed, static_cast<uint64_t>(made.table_id));
  made.initializer.fill(table->param_, random);
  if (made.rule == Rule::kAdam || made.rule == Rule::kAdamD2Sum) {
    table->first_.resize(count);
    table->second_.resize(count);
  }
  if (made.rule == Rule::kAdam) table->powers_ = {1, 1};
  if (made.rule == Rule::kAdamD2Sum) table->third_.resize(count);
  table->locks_ = std::vector<std::mutex>((count + kBlock - 1) / kBlock);
  return table;
}

Status DenseTable::check_size(size_t elements) const {
  if (elements == param_.size()) return Ok();
  return InvalidArgument("table {} has {} elements, found {}", options_.table_id, param_.size(),
                         elements);
}

Status DenseTable::pull(std::span<float> parameters) const {
  MILLRACE_RETURN_IF_ERROR(check_size(parameters.size()));
  for (size_t block = 0; block < locks_.size(); ++block) {
    const size_t begin = block * kBlock;
    const std::lock_guard lock(locks_[block]);
    std::copy_n(param_.begin() + static_cast<ptrdiff_t>(begin),
                std::min(kBlock, param_.size() - begin), parameters.data() + begin);
  }
  return Ok();
}

Status DenseTable::set(std::span<const float> parameters) {
  MILLRACE_RETURN_IF_ERROR(check_size(parameters.size()));
  for (size_t block = 0; block < locks_.size(); ++block) {
    const size_t begin = block * kBlock;
    const std::lock_guard lock(locks_[block]);
    std::copy_n(parameters.data() + begin, std::min(kBlock, param_.size() - begin),
                param_.begin() + static_cast<ptrdiff_t>(begin));
  }
  is_set_ = true;
  return Ok();
}

Status DenseTable::push(std::span<const float> grads, int trainer) {
  MILLRACE_RETURN_IF_ERROR(check_size(grads.size()));
  if (!options_.sync) return apply(grads);
  const std::lock_guard lock(push_mutex_);
  PendingPushes& pending = pending_[trainer];
  if (pending.pushes++ == 0) {
    pending.sum.assign(grads.begin(), grads.end());
  } else {
    for (size_t i = 0; i < grads.size(); ++i) pending.sum[i] += grads[i];
  }
  return Ok();
}

Status DenseTable::apply_pending() {
  std::vector<float> mean(param_.size());
  {
    const std::lock_guard lock(push_mutex_);
    int64_t pushes = 0;
    for (auto& [trainer, pending] : pending_) {
      if (pending.pushes == 0) continue;
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += pending.sum[i];
      pushes += std::exchange(pending.pushes, 0);
    }
    if (pushes == 0) return Ok();
    const float factor = 1 / static_cast<float>(pushes);
    for (float& value : mean) value *= factor;
  }
  return apply(mean);
}

Status DenseTable::apply(std::span<const float> grads) {
  float rate = options_.learning_rate;
  if (rate_ != nullptr) rate *= rate_->load(std::memory_order_relaxed);
  float epsilon = options_.epsilon;
  if (updates_ != nullptr) {
    const auto lock = updates_->lock();
    return updates_->apply(param_, grads, rate, locks_, kBlock);
  }
  if (options_.rule == Rule::kAdam) {
    // Once per push, not once per block.
    const std::lock_guard lock(push_mutex_);
    powers_[0] *= options_.beta1;
    powers_[1] *= options_.beta2;
    const float correction = std::sqrt(1 - powers_[1]);
    rate *= correction / (1 - powers_[0]);
    epsilon *= correction;
  }
  for (size_t block = 0; block < locks_.size(); ++block) {
    const size_t begin = block * kBlock;
    const std::lock_guard lock(locks_[block]);
    apply_block(begin, grads.subspan(begin, std::min(kBlock, grads.size() - begin)), rate, epsilon);
  }
  return Ok();
}

void DenseTable::apply_block(size_t begin, std::span<const float> grads, float rate,
                             float adam_epsilon) {
  float* const param = param_.data() + begin;
  const float* const grad = grads.data();
  const size_t count = grads.size();
  switch (options_.rule) {
    case Rule::kSgd:
      for (size_t i = 0; i < count; ++i) param[i] -= rate * grad[i];
      return;
    case Rule::kSum:
      for (size_t i = 0; i < count; ++i) param[i] += grad[i];
      return;
    case Rule::kSummary:
      for (size_t i = 0; i < count; ++i) param[i] = 0.999999F * param[i] + grad[i];
      return;
    case Rule::kAdam:
      return step_adam(param, first_.data() + begin, second_.data() + begin, grad, count, rate,
                       options_.beta1, options_.beta2, adam_epsilon);
    case Rule::kAdamD2Sum:
      return step_adam_d2sum(param, first_.data() + begin, second_.data() + begin,
                             third_.data() + begin, grad, count, rate, options_);
  }
}

Status DenseTable::with_columns(const std::function<Status(std::span<const Column>)>& body) {
  const std::lock_guard lock(push_mutex_);
  std::vector<std::unique_lock<std::mutex>> held;
  if (updates_ != nullptr) held.push_back(updates_->lock());
  for (std::mutex& mutex : locks_) held.emplace_back(mutex);
  std::vector<Column> columns{{"Param", param_}};
  if (updates_ != nullptr) {
    for (const Column& column : updates_->columns()) columns.push_back(column);
  } else if (options_.rule == Rule::kAdam) {
    columns.push_back({"Moment1", first_});
    columns.push_back({"Moment2", second_});
    columns.push_back({"Beta1Pow", {powers_.data(), 1}, true});
    columns.push_back({"Beta2Pow", {powers_.data() + 1, 1}, true});
  } else if (options_.rule == Rule::kAdamD2Sum) {
    columns.push_back({"Velocity", first_});
    columns.push_back({"G2Sum", second_});
    columns.push_back({"D2Sum", third_});
  }
  return body(columns);
}

StatusOr<TableState> DenseTable::state() {
  TableState state;
  MILLRACE_RETURN_IF_ERROR(with_columns([&](std::span<const Column> columns) -> Status {
    for (const Column& column : columns) {
      const std::vector<float> values(column.values.begin(), column.values.end());
      MILLRACE_ASSIGN_OR_RETURN(
          state[std::string(column.name)],
          copied_tensor(values, DType::kFloat32, {static_cast<int64_t>(values.size())}));
    }
    return Ok();
  }));
  return state;
}

Status DenseTable::set_state(const TableState& state) {
  MILLRACE_RETURN_IF_ERROR(with_columns([&](std::span<const Column> columns) -> Status {
    for (const Column& column : columns) {
      MILLRACE_ASSIGN_OR_RETURN(const auto values,
                                state_part<float>(state, std::string(column.name), DType::kFloat32,
                                                  column.values.size()));
      std::ranges::copy(values, column.values.begin());
    }
    pending_.clear();
    return Ok();
  }));
  is_set_ = true;
  return Ok();
}

Status DenseTable::pull(PullKind /*kind*/, const TableCall& /*call*/, Value& reply) {
  auto& to = reply.as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(to.resize(DType::kFloat32, {options_.elements}));
  return pull(std::span<float>(to.data<float>(), param_.size()));
}

Status DenseTable::push(PushKind kind, const TableCall& call) {
  MILLRACE_ASSIGN_OR_RETURN(const auto values, floats_of(call, 0, param_.size()));
  return kind == PushKind::kValues ? set(values) : push(values, call.trainer);
}

int64_t DenseTable::memory_bytes() const {
  size_t floats = param_.size() + first_.size() + second_.size() + third_.size();
  if (updates_ != nullptr) floats += updates_->floats();
  const std::lock_guard lock(push_mutex_);
  for (const auto& [trainer, pending] : pending_) floats += pending.sum.size();
  return static_cast<int64_t>(floats * sizeof(float));
}

}  // namespace millrace::ps
