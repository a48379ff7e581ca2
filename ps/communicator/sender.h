#pragma once

#include <span>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "ps/communicator/comm_context.h"
#include "ps/protocol/kinds.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// A trainer's connection to its servers, as used by the Communicator. Implementations handle
/// slicing, routing, repeats and addresses.
///
/// Thread-safety: calls for different contexts may be concurrent; calls for one context are made
/// one after the other. All calls return by their deadline, with kDistributed if it passes.
class Sender {
 public:
  Sender() = default;
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  virtual ~Sender() = default;

  /// Sends merged values to the servers and waits until they have received them.
  ///
  /// \param values  one for each of context.vars(): gradients, in geo the deltas (dense tensors, or
  ///     selected rows with row ids of the whole table, distinct and ascending). The sender may
  ///     move them. If context.use_send_handler is false, an int64 tensor with a number of steps
  virtual Status send(const CommContext& context, std::span<Value> values, Deadline deadline) = 0;
  /// Fetches the servers' current values of context.vars(). Tensors that have memory of the right
  /// size are filled in place.
  virtual Status receive(const CommContext& context, std::span<Value> values,
                         Deadline deadline) = 0;
  /// A context with a value for each of its vars.
  struct Parcel {
    const CommContext* context = nullptr;
    std::span<Value> values;
  };
  /// send() of several contexts, with at most one call per server if the implementation supports
  /// it. After an error, it is unknown which contexts were received.
  virtual Status send_all(std::span<const Parcel> parcels, Deadline deadline) {
    for (const Parcel& parcel : parcels)
      MILLRACE_RETURN_IF_ERROR(send(*parcel.context, parcel.values, deadline));
    return Ok();
  }
  /// receive() of several contexts, likewise.
  virtual Status receive_all(std::span<const Parcel> parcels, Deadline deadline) {
    for (const Parcel& parcel : parcels)
      MILLRACE_RETURN_IF_ERROR(receive(*parcel.context, parcel.values, deadline));
    return Ok();
  }
  /// True if send() adds up repeated rows of a value, so that the caller need not.
  [[nodiscard]] virtual bool adds_up_rows() const { return false; }
  /// Rows of a table that changed since this trainer's last call, with their current values; row
  /// ids are those of the whole table. Only used in geo mode.
  virtual Status receive_changed(const CommContext& context, SelectedRows& rows,
                                 Deadline deadline) = 0;
  /// Replaces the servers' values of context.vars() by the given ones.
  virtual Status set(const CommContext& context, std::span<const Value* const> values,
                     Deadline deadline) = 0;
  /// Arrives at a barrier and waits for the other trainers.
  virtual Status barrier(CommBarrier kind, Deadline deadline) = 0;
};

}  // namespace millrace::ps
