#include "jobs/run/stop_together.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace millrace::jobs {
namespace {

constexpr double kBetweenQuestionsS = 0.05;

}  // namespace

// At most twice the last interval, because the first steps may be faster than later ones.
int64_t StopTogether::wanted_interval() const {
  const double s = std::chrono::duration<double>(Clock::now() - asked_).count();
  const double steps = static_cast<double>(steps_) * kBetweenQuestionsS / std::max(s, 1e-9);
  const double most = 2.0 * static_cast<double>(interval_);
  return static_cast<int64_t>(std::clamp(steps, 1.0, most));
}

Status StopTogether::after_step() {
  if (ranks_ == nullptr || ++steps_ < interval_) return Ok();
  // the maximum signal and the minimum interval over all ranks
  std::array<int64_t, 2> facts = {seen_(), -wanted_interval()};
  MILLRACE_RETURN_IF_ERROR(ranks_->all_reduce(DType::kInt64,
                                              reinterpret_cast<std::byte*>(facts.data()),
                                              facts.size(), executor::Reduction::kMax));
  agreed_ = static_cast<int>(facts[0]);
  interval_ = -facts[1];
  steps_ = 0;
  asked_ = Clock::now();
  return Ok();
}

}  // namespace millrace::jobs
