#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "framework/base/status.h"

namespace millrace::ps {

/// Limits the total bytes of messages that are being received and handled. Thread-safety: all
/// members.
class MemoryBudget {
 public:
  /// \param of  whose bytes these are, for errors: "the calls in progress"
  MemoryBudget(uint64_t bytes, std::string of) : limit_(bytes), of_(std::move(of)) {}
  [[nodiscard]] uint64_t limit() const { return limit_; }
  [[nodiscard]] const std::string& of() const { return of_; }
  /// Reserves bytes. \returns false if that would exceed the limit
  bool take(uint64_t bytes);
  void give_back(uint64_t bytes) { used_ -= bytes; }

 private:
  uint64_t limit_;
  std::string of_;
  std::atomic<uint64_t> used_{0};
};

/// Bytes reserved in a budget; given back at the end of the object. Thread-safety: one thread.
class Reservation {
 public:
  /// Without a budget: never refuses.
  Reservation() = default;
  /// \param budget  outlives the object; may be null
  explicit Reservation(MemoryBudget* budget) : budget_(budget) {}
  explicit Reservation(std::shared_ptr<MemoryBudget> budget)
      : kept_(std::move(budget)), budget_(kept_.get()) {}
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation();

  /// Reserves more bytes. Errors: kResource, which names the budget and its limit.
  Status add(uint64_t bytes);

 private:
  std::shared_ptr<MemoryBudget> kept_;
  MemoryBudget* budget_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace millrace::ps
