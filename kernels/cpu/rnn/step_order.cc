#include "kernels/cpu/rnn/step_order.h"

#include <algorithm>
#include <numeric>

namespace millrace::kernels::rnn {

void StepOrder::build(llvm::ArrayRef<int64_t> offsets, bool reverse) {
  const auto length = [&](int64_t s) {
    return offsets[static_cast<size_t>(s) + 1] - offsets[static_cast<size_t>(s)];
  };
  sequences_.resize(offsets.size() - 1);
  std::iota(sequences_.begin(), sequences_.end(), 0);
  std::stable_sort(sequences_.begin(), sequences_.end(),
                   [&](int64_t a, int64_t b) { return length(a) > length(b); });
  starts_.assign(1, 0);
  rows_.clear();
  const int64_t steps = sequences_.empty() ? 0 : length(sequences_.front());
  for (int64_t t = 0; t < steps; ++t) {
    for (const int64_t s : sequences_) {
      if (length(s) <= t) break;
      const auto at = static_cast<size_t>(s);
      rows_.push_back(reverse ? offsets[at + 1] - 1 - t : offsets[at] + t);
    }
    starts_.push_back(static_cast<int64_t>(rows_.size()));
  }
}

}  // namespace millrace::kernels::rnn
