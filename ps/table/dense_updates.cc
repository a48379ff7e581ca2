#include "ps/table/dense_updates.h"

#include <algorithm>

#include <llvm/ADT/SmallVector.h>

namespace millrace::ps {

DenseUpdates::DenseUpdates(std::vector<DenseUpdate> ranges) : ranges_(std::move(ranges)) {
  size_t elements = 0;
  for (const DenseUpdate& range : ranges_) elements += static_cast<size_t>(range.elements);
  size_t first = 0;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const UpdateOp& op = *ranges_[i].op;
    const auto count = static_cast<size_t>(ranges_[i].elements);
    std::vector<size_t>& used = used_.emplace_back();
    for (size_t k = 0; k < op.states().size(); ++k) {
      State& state = state_of(op.states()[k]);
      used.push_back(static_cast<size_t>(&state - states_.data()));
      state.values.resize(state.is_scalar ? ranges_.size() : elements);
      const auto begin = state.values.begin() + static_cast<ptrdiff_t>(state.is_scalar ? i : first);
      std::fill_n(begin, state.is_scalar ? 1 : count, op.options().initial[k]);
    }
    first += count;
  }
}

DenseUpdates::State& DenseUpdates::state_of(const UpdateSlot& slot) {
  const auto found = std::ranges::find(states_, slot.input, &State::name);
  if (found != states_.end()) return *found;
  return states_.emplace_back(State{slot.input, slot.is_scalar, {}});
}

// Updates `count` elements of a range from element `first` of the table on. Scalars change with the
// last elements of a push, since all elements need their old values.
Status DenseUpdates::apply_range(size_t range, size_t first, size_t count, float* param,
                                 const float* grads, float rate, bool keeps_scalars) {
  llvm::SmallVector<float, 4> scalars(used_[range].size());
  llvm::SmallVector<float*, 4> states;
  for (size_t k = 0; k < used_[range].size(); ++k) {
    State& state = states_[used_[range][k]];
    if (state.is_scalar) scalars[k] = state.values[range];
    states.push_back(state.is_scalar ? &scalars[k] : state.values.data() + first);
  }
  MILLRACE_RETURN_IF_ERROR(ranges_[range].op->update(static_cast<int64_t>(count), param + first,
                                                     {states.data(), states.size()}, grads + first,
                                                     rate * ranges_[range].rate_factor));
  if (keeps_scalars) return Ok();
  for (size_t k = 0; k < used_[range].size(); ++k) {
    State& state = states_[used_[range][k]];
    if (state.is_scalar) state.values[range] = scalars[k];
  }
  return Ok();
}

// Updates an element of its own, and keeps the scalars only.
Status DenseUpdates::advance_scalars(size_t range, float rate) {
  float param = 0;
  const float grad = 0;
  llvm::SmallVector<float, 4> values;
  llvm::SmallVector<float*, 4> states;
  const UpdateOp& op = *ranges_[range].op;
  for (size_t k = 0; k < used_[range].size(); ++k) {
    const State& state = states_[used_[range][k]];
    values.push_back(state.is_scalar ? state.values[range] : op.options().initial[k]);
  }
  for (float& value : values) states.push_back(&value);
  MILLRACE_RETURN_IF_ERROR(op.update(1, &param, {states.data(), states.size()}, &grad,
                                     rate * ranges_[range].rate_factor));
  for (size_t k = 0; k < used_[range].size(); ++k) {
    State& state = states_[used_[range][k]];
    if (state.is_scalar) state.values[range] = values[k];
  }
  return Ok();
}

Status DenseUpdates::apply(std::span<float> param, std::span<const float> grads, float rate,
                           std::span<std::mutex> locks, size_t block) {
  size_t first = 0;
  for (size_t range = 0; range < ranges_.size(); ++range) {
    const size_t end = first + static_cast<size_t>(ranges_[range].elements);
    const bool is_whole = ranges_[range].op->kind().is_whole;
    // scalars of a range are equal on all servers, also where it has no elements: another number of
    // servers may take them from any
    if (first == end) MILLRACE_RETURN_IF_ERROR(advance_scalars(range, rate));
    while (first < end) {
      const size_t stop = is_whole ? end : std::min(end, (first / block + 1) * block);
      std::vector<std::unique_lock<std::mutex>> held;
      for (size_t at = first / block; at <= (stop - 1) / block; ++at) held.emplace_back(locks[at]);
      MILLRACE_RETURN_IF_ERROR(
          apply_range(range, first, stop - first, param.data(), grads.data(), rate, stop != end));
      first = stop;
    }
  }
  return Ok();
}

std::vector<DenseColumn> DenseUpdates::columns() {
  std::vector<DenseColumn> columns;
  for (State& state : states_) columns.push_back({state.name, state.values, state.is_scalar});
  return columns;
}

size_t DenseUpdates::floats() const {
  size_t floats = 0;
  for (const State& state : states_) floats += state.values.size();
  return floats;
}

}  // namespace millrace::ps
