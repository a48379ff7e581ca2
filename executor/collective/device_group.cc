#include "executor/collective/device_group.h"

#include <type_traits>
#include <utility>
#include <vector>

#include "framework/base/errors.h"

namespace millrace::executor {
namespace {

using gpu::CollectiveCall;
using gpu::CollectiveKind;

template <typename T>
StatusOr<std::vector<T>> from_all(CollectiveGroup& host, const T& own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<size_t>(host.size()));
  MILLRACE_RETURN_IF_ERROR(host.all_gather(reinterpret_cast<const std::byte*>(&own), sizeof own,
                                           reinterpret_cast<std::byte*>(all.data())));
  return all;
}

// What each rank tells the others before they join.
struct Readiness {
  int32_t is_ready = 0;
  gpu::CommunicatorId id;  ///< of rank 0
};

// Loads the library, and creates the id if this is rank 0.
StatusOr<gpu::Collectives*> prepare_collectives(gpu::Device& device, int rank,
                                                gpu::CommunicatorId& id) {
  MILLRACE_ASSIGN_OR_RETURN(gpu::Collectives* const collectives, device.collectives());
  if (rank == 0) {
    MILLRACE_ASSIGN_OR_RETURN(id, collectives->make_id());
  }
  return collectives;
}

// All ranks know of a failure of one rank before any rank waits for it in the library.
StatusOr<std::unique_ptr<gpu::Communicator>> join_ranks(CollectiveGroup& host,
                                                        gpu::Device& device) {
  Readiness own;
  const StatusOr<gpu::Collectives*> collectives = prepare_collectives(device, host.rank(), own.id);
  own.is_ready = collectives.ok() ? 1 : 0;
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<Readiness> all, from_all(host, own));
  if (!collectives.ok()) return collectives.status();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].is_ready == 0)
      return Unimplemented("rank {} cannot exchange values between GPUs; see its own error", rank);
  }
  gpu::CommunicatorPlace place{.rank = host.rank(),
                               .size = host.size(),
                               .join_timeout_ms = host.timeout_ms(),
                               .timeout_ms = host.timeout_ms()};
  if (host.engine() != "threads") {
    place.gather = [&host](const std::byte* part, int64_t bytes, std::byte* to) {
      return host.all_gather(part, bytes, to);
    };
  }
  StatusOr<std::unique_ptr<gpu::Communicator>> joined = (*collectives)->join(all[0].id, place);
  StatusOr<std::vector<int32_t>> have_joined = from_all<int32_t>(host, joined.ok() ? 1 : 0);
  if (!have_joined.ok()) {
    Status lost = have_joined.status();
    return joined.ok() ? lost : std::move(lost).with_note(joined.status().message());
  }
  if (!joined.ok()) return joined;
  for (size_t rank = 0; rank < have_joined->size(); ++rank) {
    if ((*have_joined)[rank] == 0)
      return Status(StatusCode::kDistributed,
                    fmt::format("rank {} could not join the others; see its own error", rank));
  }
  return joined;
}

}  // namespace

// What a rank tells the others when the ranks meet.
struct DeviceGroup::Meeting {
  enum What : int64_t { kCall, kBarrier, kFailure };
  int64_t what = kCall;
  CollectiveCall call;  ///< the call that it makes, or that has failed

  bool operator==(const Meeting&) const = default;
  [[nodiscard]] std::string text() const {
    return what == kBarrier ? "barrier" : gpu::describe(call);
  }
};

DeviceGroup::DeviceGroup(CollectiveGroup& host, std::shared_ptr<gpu::Context> context,
                         std::unique_ptr<gpu::Communicator> communicator,
                         std::unique_ptr<CollectiveGroup> own_host)
    : CollectiveGroup({.rank = host.rank(), .size = host.size(), .timeout_ms = host.timeout_ms()}),
      own_host_(std::move(own_host)),
      host_(host),
      context_(std::move(context)),
      communicator_(std::move(communicator)) {}

Status DeviceGroup::meet(const Meeting& own) {
  StatusOr<std::vector<Meeting>> all = from_all(host_, own);
  if (!all.ok()) {
    return std::move(all).status().with_note(
        fmt::format("rank {} of {} in call {}, {}", rank(), size(), calls(), own.text()));
  }
  for (int other = 0; other < size(); ++other) {
    const Meeting& theirs = (*all)[static_cast<size_t>(other)];
    if (theirs == own) continue;
    if (theirs.what == Meeting::kFailure)
      return {StatusCode::kDistributed,
              fmt::format("rank {} has failed in {}", other, theirs.text())};
    if (own.what == Meeting::kFailure) continue;
    return {StatusCode::kDistributed,
            fmt::format("the ranks do not agree in call {}: rank {} makes {}, rank {} makes {}",
                        calls(), rank(), own.text(), other, theirs.text())};
  }
  return Ok();
}

Status DeviceGroup::exchange(const CollectiveCall& call, const std::byte* from, std::byte* to) {
  MILLRACE_RETURN_IF_ERROR(meet({Meeting::kCall, call}));
  Status status = communicator_->start(call, from, to);
  if (status.ok()) status = communicator_->wait();
  // do_abort() reports a failure of this rank; otherwise the reason is a rank that is missing now
  if (status.code() != StatusCode::kDistributed || !host_.state().ok()) return status;
  const Status met = meet({Meeting::kFailure, call});
  return host_.state().ok() ? status : Status(met).with_note(status.message());
}

Status DeviceGroup::do_all_reduce(DType dtype, std::byte* data, int64_t count,
                                  Reduction reduction) {
  return exchange(
      {.kind = CollectiveKind::kAllReduce, .dtype = dtype, .reduction = reduction, .count = count},
      data, data);
}

Status DeviceGroup::do_reduce(DType dtype, std::byte* data, int64_t count, Reduction reduction,
                              int root) {
  return exchange({.kind = CollectiveKind::kReduce,
                   .dtype = dtype,
                   .reduction = reduction,
                   .root = root,
                   .count = count},
                  data, data);
}

Status DeviceGroup::do_broadcast(std::byte* data, int64_t bytes, int root) {
  return exchange({.kind = CollectiveKind::kBroadcast, .root = root, .count = bytes}, data, data);
}

Status DeviceGroup::do_all_gather(const std::byte* part, int64_t bytes, std::byte* all) {
  return exchange({.kind = CollectiveKind::kAllGather, .count = bytes}, part, all);
}

Status DeviceGroup::do_reduce_scatter(DType dtype, const std::byte* all, int64_t count,
                                      std::byte* part, Reduction reduction) {
  return exchange({.kind = CollectiveKind::kReduceScatter,
                   .dtype = dtype,
                   .reduction = reduction,
                   .count = count},
                  all, part);
}

Status DeviceGroup::do_barrier() {
  return meet({Meeting::kBarrier, {}});
}

// Messages between two ranks are in host memory, so they use the host group.
Status DeviceGroup::do_send(const std::byte* data, int64_t bytes, int to) {
  return host_.send(data, bytes, to);
}
Status DeviceGroup::do_receive(std::byte* data, int64_t bytes, int from) {
  return host_.receive(data, bytes, from);
}

StatusOr<std::unique_ptr<CollectiveGroup>> DeviceGroup::do_subgroup(llvm::ArrayRef<int> members,
                                                                    int /*own_place*/) {
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<CollectiveGroup> part, host_.subgroup(members));
  CollectiveGroup& host = *part;
  std::unique_ptr<gpu::Communicator> communicator;
  if (host.size() > 1) {
    MILLRACE_ASSIGN_OR_RETURN(communicator, join_ranks(host, context_->device()));
  }
  return std::unique_ptr<CollectiveGroup>(
      std::make_unique<DeviceGroup>(host, context_, std::move(communicator), std::move(part)));
}

void DeviceGroup::do_abort(const Status& reason) {
  if (communicator_ != nullptr) communicator_->abort(reason);
  host_.abort(reason);
}

Status DeviceGroup::copy_alone(const std::byte* from, std::byte* to, int64_t bytes) {
  return context_->device().copy(from, to, bytes);
}

StatusOr<std::unique_ptr<CollectiveGroup>> make_device_group(
    CollectiveGroup& host, std::shared_ptr<gpu::Context> context) {
  std::unique_ptr<gpu::Communicator> communicator;
  if (host.size() > 1) {
    MILLRACE_ASSIGN_OR_RETURN(communicator, join_ranks(host, context->device()));
  }
  return std::unique_ptr<CollectiveGroup>(
      std::make_unique<DeviceGroup>(host, std::move(context), std::move(communicator)));
}

}  // namespace millrace::executor
