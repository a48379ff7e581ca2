#pragma once

#include <span>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "ps/communicator/comm_context.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// What trainers wait for together.
enum class CommBarrier {
  kSend,     ///< every trainer has sent the gradients of its step
  kReceive,  ///< every trainer has received the parameters of its step
  kInit,     ///< the initial values are on the servers
};

/// A trainer's way to its servers, as the Communicator needs it. Cuts, routes, repeats and
/// addresses are the business of the implementation.
///
/// Thread-safety: calls for different contexts come from several threads at once, those for one
/// context one after the other. All calls return by their deadline, with kDistributed.
class Sender {
 public:
  Sender() = default;
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  virtual ~Sender() = default;

  /// Hands merged values to the servers and waits until they have them.
  ///
  /// \param values  one for each of context.vars(): gradients, in geo the deltas (dense tensors, or
  ///     selected rows with rows of the whole table, each once, rising). The sender may take them
  ///     away. An int64 tensor where context.use_send_handler is false: a number of steps
  virtual Status send(const CommContext& context, std::span<Value> values, Deadline deadline) = 0;
  /// The servers' present values of context.vars(). Tensors that have memory of the right size are
  /// filled in place.
  virtual Status receive(const CommContext& context, std::span<Value> values,
                         Deadline deadline) = 0;
  /// A context with a value for each of its vars.
  struct Parcel {
    const CommContext* context = nullptr;
    std::span<Value> values;
  };
  /// send() of several contexts, in no more calls than there are servers if the implementation can.
  /// After an error it is not known which of them arrived.
  virtual Status send_all(std::span<const Parcel> parcels, Deadline deadline) {
    for (const Parcel& parcel : parcels)
      MILLRACE_RETURN_IF_ERROR(send(*parcel.context, parcel.values, deadline));
    return Ok();
  }
  /// receive() of several contexts in the same way.
  virtual Status receive_all(std::span<const Parcel> parcels, Deadline deadline) {
    for (const Parcel& parcel : parcels)
      MILLRACE_RETURN_IF_ERROR(receive(*parcel.context, parcel.values, deadline));
    return Ok();
  }
  /// True if send() adds up rows that occur several times in a value, so that nobody has to before.
  [[nodiscard]] virtual bool adds_up_rows() const { return false; }
  /// Rows of a table that changed since this trainer last asked, with their present values; rows
  /// are those of the whole table. Only geo asks this.
  virtual Status receive_changed(const CommContext& context, SelectedRows& rows,
                                 Deadline deadline) = 0;
  /// Replaces the servers' values of context.vars() by the trainer's.
  virtual Status set(const CommContext& context, std::span<const Value* const> values,
                     Deadline deadline) = 0;
  /// Arrives at a barrier and waits for the other trainers.
  virtual Status barrier(CommBarrier kind, Deadline deadline) = 0;
};

}  // namespace millrace::ps
