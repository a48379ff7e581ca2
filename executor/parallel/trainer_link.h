#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/base/status.h"
#include "framework/types.h"

namespace millrace::executor {

/// Sums between the processes of a data-parallel job, each of which drives several devices.
///
/// Every process makes the same calls in the same order, from one thread at a time.
class TrainerLink {
 public:
  TrainerLink() = default;
  TrainerLink(const TrainerLink&) = delete;
  TrainerLink& operator=(const TrainerLink&) = delete;
  virtual ~TrainerLink() = default;

  [[nodiscard]] virtual int trainers() const = 0;
  [[nodiscard]] virtual int trainer_id() const = 0;
  /// Replaces the elements by their sum over all processes. Errors: kDistributed for a lost peer or
  /// a deadline.
  /// \param ring  communicator of this exchange, for engines that have several
  virtual Status all_reduce(DType dtype, std::byte* data, int64_t count, int ring) = 0;
};

}  // namespace millrace::executor
