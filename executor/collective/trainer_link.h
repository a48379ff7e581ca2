#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/base/errors.h"
#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "framework/types.h"

namespace millrace::executor {

/// Sums between the processes of a data-parallel job, each of which drives several devices.
///
/// Every process makes the same calls in the same order, from one thread at a time. Errors of all:
/// kDistributed for a lost peer or a deadline; kUnimplemented for functions that a link does not
/// support.
class TrainerLink {
 public:
  TrainerLink() = default;
  TrainerLink(const TrainerLink&) = delete;
  TrainerLink& operator=(const TrainerLink&) = delete;
  virtual ~TrainerLink() = default;

  [[nodiscard]] virtual int trainers() const = 0;
  [[nodiscard]] virtual int trainer_id() const = 0;
  /// Replaces the elements by their sum over all processes.
  /// \param ring  communicator of this exchange, for engines that have several
  virtual Status all_reduce(DType dtype, std::byte* data, int64_t count, int ring) = 0;
  /// Replaces rows by those of all processes, in their order.
  virtual Status gather_rows(SelectedRows& /*rows*/) {
    return Unimplemented("this link between processes has no sparse gradients");
  }
  /// Replaces the bytes by those of process 0.
  virtual Status broadcast(std::byte* /*data*/, int64_t /*bytes*/) {
    return Unimplemented("this link between processes has no broadcast");
  }
  /// Notifies the others, if the engine supports it, that this process has failed.
  virtual void abort(const Status& /*reason*/) {}
};

}  // namespace millrace::executor
