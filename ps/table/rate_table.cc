#include "ps/table/rate_table.h"

#include <cmath>

#include "framework/base/errors.h"
#include "ps/table/state_parts.h"

namespace millrace::ps {

StatusOr<TableState> RateTable::state() {
  TableState state;
  MILLRACE_ASSIGN_OR_RETURN(state[kRatePart],
                            copied_tensor(std::vector<float>{rate_.load(std::memory_order_relaxed)},
                                          DType::kFloat32, {1}));
  return state;
}

Status RateTable::set_state(const TableState& state) {
  MILLRACE_ASSIGN_OR_RETURN(const auto rate,
                            state_part<float>(state, kRatePart, DType::kFloat32, 1));
  rate_.store(rate[0], std::memory_order_relaxed);
  return Ok();
}

Status RateTable::pull(PullKind /*kind*/, const TableCall& /*call*/, Value& reply) {
  auto& to = reply.as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(to.resize(DType::kFloat32, {1}));
  *to.data<float>() = rate_.load(std::memory_order_relaxed);
  return Ok();
}

Status RateTable::push(PushKind /*kind*/, const TableCall& call) {
  MILLRACE_ASSIGN_OR_RETURN(const auto given, floats_of(call, 0, 1));
  if (!std::isfinite(given[0]))
    return InvalidArgument("trainer {} set the learning rate to {}, expected a finite number",
                           call.trainer, given[0]);
  rate_.store(given[0], std::memory_order_relaxed);
  return Ok();
}

}  // namespace millrace::ps
