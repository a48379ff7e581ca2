#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "framework/base/status.h"
#include "framework/types.h"
#include "kernels/cpu/collective/reduce_parts.h"

namespace millrace::gpu {

using kernels::Reduction;

/// Identifies a communicator: created by one rank and passed to all others.
struct CommunicatorId {
  std::array<char, 128> bytes{};  ///< as the library made it
};

/// Rank of a process in a communicator, and its timeouts.
struct CommunicatorPlace {
  int rank = 0;                       ///< of this process
  int size = 1;                       ///< number of ranks
  int64_t join_timeout_ms = 120'000;  ///< until all ranks have joined
  int64_t timeout_ms = 600'000;       ///< limit of one wait() for queued work
  /// Gathers the same number of bytes from all ranks, in rank order, through the memory of the
  /// processes. Used by emulated devices of several processes only; GPU libraries ignore it.
  std::function<Status(const std::byte* part, int64_t bytes, std::byte* all)> gather = {};
  /// Asked during waits for other ranks: true ends the wait, with kDistributed. For ranks that are
  /// threads of one process. Emulated devices do not ask: abort() of any rank ends their waits.
  std::function<bool()> is_stopped = {};
};

/// The operations; Communicator::start() says what each does.
enum class CollectiveKind : int32_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
};

/// One collective operation; all ranks must pass the same values. Bytes are elements of kUint8.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kAllReduce;  ///< all ranks state the same kind
  DType dtype = DType::kUint8;                       ///< type of the elements that are combined
  Reduction reduction = Reduction::kSum;
  int32_t root = 0;   ///< of kReduce and kBroadcast
  int64_t count = 0;  ///< elements per rank; elements per part for kAllGather and kReduceScatter

  bool operator==(const CollectiveCall&) const = default;
};

/// "all_reduce (sum) of 10 elements of f32".
std::string describe(const CollectiveCall& call);

/// True for the element types that communicators support: those that processes combine, except i16,
/// which NCCL lacks.
bool is_exchanged(DType dtype);

/// One of several ranks whose devices exchange values in device memory.
///
/// All ranks must make the same calls in the same order. Calls queue work on the device, after the
/// work queued before; later work of that device sees the result. Only wait() has a deadline, so
/// call it before any other wait for the device. The first failure of a call breaks the
/// communicator: its queued work ends, and every later call fails with the same reason. Errors:
/// kDistributed for ranks that are lost, too slow, or do not agree; kInvalidArgument,
/// kUnimplemented for bad arguments; kExecution for errors of the device. All messages contain this
/// rank and the call.
///
/// Must not outlive its device. Thread-safety: as Device.
class Communicator {
 public:
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  [[nodiscard]] int rank() const { return place_.rank; }
  [[nodiscard]] int size() const { return place_.size; }
  /// Ok, or the error that broke the communicator.
  [[nodiscard]] const Status& state() const { return state_; }

  /// Starts a collective operation. All-reduce: every rank gets the combination of all elements.
  /// Reduce: only the root gets it, and only its `to` is written. Broadcast: every rank gets the
  /// elements of the root. All-gather: every rank gets the parts of all ranks in rank order.
  /// Reduce-scatter: rank r gets the r-th of size() equal parts of the combination.
  ///
  /// \param to  may be the same as from, except for all-gather and reduce-scatter
  Status start(const CollectiveCall& call, const std::byte* from, std::byte* to);
  /// Waits until all queued work is done, at most CommunicatorPlace::timeout_ms.
  Status wait();
  /// Ends queued work of this communicator because of a failure elsewhere. Keeps the first reason.
  void abort(const Status& reason);

 protected:
  explicit Communicator(const CommunicatorPlace& place) : place_(place) {}

  [[nodiscard]] const CommunicatorPlace& place() const { return place_; }

  /// Queues a call whose arguments have been checked and whose count is positive.
  virtual Status queue(const CollectiveCall& call, const std::byte* from, std::byte* to) = 0;
  /// Implements wait().
  virtual Status finish() = 0;
  /// Ends queued work. Only the destructor is called afterwards.
  virtual void stop(const Status& reason) = 0;

 private:
  [[nodiscard]] Status check(const CollectiveCall& call) const;
  Status keep(Status status);

  CommunicatorPlace place_;
  CollectiveCall latest_;
  Status state_;
};

/// Creates communicators between a device and other devices.
class Collectives {
 public:
  Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;
  virtual ~Collectives() = default;

  /// "NCCL 2.28.9".
  [[nodiscard]] virtual std::string library() const = 0;
  /// Creates an id for a new communicator. Errors: kDistributed if the library cannot create one.
  virtual StatusOr<CommunicatorId> make_id() = 0;
  /// Joins the ranks that were given the same id; returns when all have joined. Errors:
  /// kDistributed if they do not join in time (the message has this rank); kInvalidArgument for a
  /// rank out of range.
  virtual StatusOr<std::unique_ptr<Communicator>> join(const CommunicatorId& id,
                                                       const CommunicatorPlace& place) = 0;
};

/// kInvalidArgument if the rank is not in [0, size).
Status check_place(const CommunicatorPlace& place);

}  // namespace millrace::gpu
