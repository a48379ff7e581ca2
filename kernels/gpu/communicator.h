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

/// By what the ranks of a communicator find each other: made by one of them, given to all.
struct CommunicatorId {
  std::array<char, 128> bytes{};
};

/// Which rank of a communicator this one is, and how long it waits for the others.
struct CommunicatorPlace {
  int rank = 0;
  int size = 1;
  int64_t join_timeout_ms = 120'000;  ///< until all ranks have joined
  int64_t timeout_ms = 600'000;       ///< of one wait for what was queued
  /// Gathers equally many bytes of all ranks, in their order, through the memory of the processes:
  /// the way that emulated devices of several processes have. Libraries of GPUs do not look at it.
  std::function<Status(const std::byte* part, int64_t bytes, std::byte* all)> gather = {};
};

enum class CollectiveKind : int32_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
};

/// What the ranks do together; all say the same. Bytes are elements of kUint8.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DType dtype = DType::kUint8;
  Reduction reduction = Reduction::kSum;
  int32_t root = 0;
  int64_t count = 0;  ///< elements of a rank; of a part for kAllGather and kReduceScatter

  bool operator==(const CollectiveCall&) const = default;
};

/// "all_reduce (sum) of 10 elements of f32".
std::string describe(const CollectiveCall& call);

/// True for the element types that communicators combine: what processes combine, but i16, which
/// NCCL lacks.
bool is_exchanged(DType dtype);

/// One rank of several whose devices exchange values that lie in their memory.
///
/// All ranks make the same calls in the same order. Calls queue work of the device, behind what was
/// queued before; the result is there when later work of that device runs. wait() is the only wait
/// with a deadline, so it comes before any other wait for the device. The first failure of a call
/// breaks the communicator: queued work of it ends, and every later call says so. Errors:
/// kDistributed for ranks that are lost, too slow, or do not agree; kInvalidArgument,
/// kUnimplemented for bad arguments; kExecution for the device's. All name this rank and the call.
///
/// Must not outlive its device. Thread-safety: as Device.
class Communicator {
 public:
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  [[nodiscard]] int rank() const { return place_.rank; }
  [[nodiscard]] int size() const { return place_.size; }
  /// Ok, or what broke the communicator.
  [[nodiscard]] const Status& state() const { return state_; }

  /// Begins a call: all-reduce gives every rank the combination of all elements, reduce only the
  /// root, whose `to` alone is written; broadcast gives every rank what the root has; all-gather
  /// the parts of all ranks in order; reduce-scatter gives rank r the r-th of size() equal parts of
  /// the combination.
  ///
  /// \param to  may be from, but for the calls with parts
  Status start(const CollectiveCall& call, const std::byte* from, std::byte* to);
  /// Waits until all queued work is done, at most timeout_ms of the place.
  Status wait();
  /// Ends queued work of this communicator because of a failure elsewhere. Keeps the first reason.
  void abort(const Status& reason);

 protected:
  explicit Communicator(const CommunicatorPlace& place) : place_(place) {}

  [[nodiscard]] const CommunicatorPlace& place() const { return place_; }

  /// Queues a call whose arguments are known to be good and whose count is positive.
  virtual Status queue(const CollectiveCall& call, const std::byte* from, std::byte* to) = 0;
  /// What wait() does.
  virtual Status finish() = 0;
  /// Ends queued work; nothing but the destructor is called after that.
  virtual void stop(const Status& reason) = 0;

 private:
  [[nodiscard]] Status check(const CollectiveCall& call) const;
  Status keep(Status status);

  CommunicatorPlace place_;
  CollectiveCall latest_;
  Status state_;
};

/// How a device exchanges values with others.
class Collectives {
 public:
  Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;
  virtual ~Collectives() = default;

  /// "NCCL 2.28.9".
  [[nodiscard]] virtual std::string library() const = 0;
  /// An id for one communicator. Errors: kDistributed where there is no way to be found.
  virtual StatusOr<CommunicatorId> make_id() = 0;
  /// Joins the ranks that were given the same id; returns when all have. Errors: kDistributed where
  /// they do not come in time, naming this rank; kInvalidArgument for a rank out of range.
  virtual StatusOr<std::unique_ptr<Communicator>> join(const CommunicatorId& id,
                                                       const CommunicatorPlace& place) = 0;
};

/// kInvalidArgument for a place that no communicator has.
Status check_place(const CommunicatorPlace& place);

}  // namespace millrace::gpu
