#include "ps/table/tensor_table.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "framework/base/errors.h"
#include "framework/tensor/scope.h"
#include "ps/table/state_parts.h"

namespace millrace::ps {
namespace {

// A program with the scope in which it runs.
struct RateProgram {
  Scope scope;
  std::unique_ptr<executor::PreparedProgram> program;
};

}  // namespace

StatusOr<RateOfStep> program_rate(const Program& program, std::string counter, std::string rate) {
  auto job = std::make_shared<RateProgram>();
  const executor::Executor executor(executor::standard_runtime());
  MILLRACE_ASSIGN_OR_RETURN(job->program, executor.prepare(program, job->scope));
  return RateOfStep(
      [job, counter = std::move(counter), rate = std::move(rate)](int64_t step) -> StatusOr<float> {
        executor::NamedValues feeds;
        MILLRACE_ASSIGN_OR_RETURN(Tensor number, Tensor::create(DType::kInt64, {1}));
        *number.data<int64_t>() = step;
        feeds[counter].as<Tensor>() = std::move(number);
        std::vector<Value> results;
        MILLRACE_RETURN_IF_ERROR(job->program->run(feeds, {rate}, results));
        const auto* const result = results[0].get_if<Tensor>();
        if (result == nullptr || result->dtype() != DType::kFloat32 || result->numel() != 1)
          return Status(StatusCode::kExecution,
                        fmt::format("the learning rate '{}' is {}, expected one "
                                    "element of f32",
                                    rate, describe(results[0])));
        return *result->data<float>();
      });
}

TensorTable::TensorTable(int trainers, RateOfStep rate_of)
    : rate_of_(std::move(rate_of)), steps_(static_cast<size_t>(trainers)) {}

Status TensorTable::count(int trainer, int64_t steps) {
  const std::lock_guard lock(mutex_);
  if (trainer < 0 || trainer >= static_cast<int>(steps_.size()))
    return InvalidArgument("found steps of trainer {}, expected one of the {} trainers", trainer,
                           steps_.size());
  if (steps < 0)
    return InvalidArgument("trainer {} sent {} steps, expected at least 0", trainer, steps);
  steps_[static_cast<size_t>(trainer)] += steps;
  return update_rate();
}

Status TensorTable::update_rate() {
  if (!rate_of_) return Ok();
  const int64_t sum = std::accumulate(steps_.begin(), steps_.end(), int64_t{0});
  if (sum == 0) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const float rate, rate_of_(sum - 1));
  rate_.store(rate, std::memory_order_relaxed);
  return Ok();
}

int64_t TensorTable::steps() const {
  const std::lock_guard lock(mutex_);
  return std::accumulate(steps_.begin(), steps_.end(), int64_t{0});
}

Status TensorTable::pull(PullKind /*kind*/, const TableCall& /*call*/, Value& reply) {
  auto& to = reply.as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(to.resize(DType::kInt64, {1}));
  *to.data<int64_t>() = steps();
  return Ok();
}

Status TensorTable::push(PushKind /*kind*/, const TableCall& call) {
  MILLRACE_ASSIGN_OR_RETURN(const auto given, ids_of(call, 0));
  if (given.size() != 1)
    return InvalidArgument("found {} numbers of steps, expected 1", given.size());
  return count(call.trainer, given[0]);
}

StatusOr<TableState> TensorTable::state() {
  const std::lock_guard lock(mutex_);
  TableState state;
  MILLRACE_ASSIGN_OR_RETURN(
      state[kStepsPart],
      copied_tensor(steps_, DType::kInt64, {static_cast<int64_t>(steps_.size())}));
  return state;
}

Status TensorTable::set_state(const TableState& state) {
  const std::lock_guard lock(mutex_);
  MILLRACE_ASSIGN_OR_RETURN(const auto steps,
                            state_part<int64_t>(state, kStepsPart, DType::kInt64, steps_.size()));
  if (std::ranges::any_of(steps, [](int64_t each) { return each < 0; }))
    return InvalidData("state '{}' of a table: expected no negative number", kStepsPart);
  steps_.assign(steps.begin(), steps.end());
  return update_rate();
}

int64_t TensorTable::memory_bytes() const {
  return static_cast<int64_t>(steps_.size() * sizeof(int64_t));
}

}  // namespace millrace::ps
