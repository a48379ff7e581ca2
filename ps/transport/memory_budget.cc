#include "ps/transport/memory_budget.h"

#include <fmt/format.h>

namespace millrace::ps {

bool MemoryBudget::take(uint64_t bytes) {
  uint64_t sum = 0;
  uint64_t used = used_.load();
  do {
    if (__builtin_add_overflow(used, bytes, &sum) || sum > limit_) return false;
  } while (!used_.compare_exchange_weak(used, sum));
  return true;
}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  std::swap(kept_, other.kept_);
  std::swap(budget_, other.budget_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Reservation::~Reservation() {
  if (bytes_ > 0) budget_->give_back(bytes_);
}

Status Reservation::add(uint64_t bytes) {
  if (budget_ == nullptr) return Ok();
  if (!budget_->take(bytes)) {
    return {StatusCode::kResource, fmt::format("with another {} bytes, {} would hold more than {}",
                                               bytes, budget_->of(), budget_->limit())};
  }
  bytes_ += bytes;
  return Ok();
}

}  // namespace millrace::ps
