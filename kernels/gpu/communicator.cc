#include "kernels/gpu/communicator.h"

#include <fmt/format.h>

#include "framework/base/errors.h"

namespace millrace::gpu {
namespace {

constexpr std::array<const char*, 5> kCollectiveNames = {"all_reduce", "reduce", "broadcast",
                                                         "all_gather", "reduce_scatter"};

bool combines(CollectiveKind kind) {
  return kind != CollectiveKind::kBroadcast && kind != CollectiveKind::kAllGather;
}
bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::kReduce || kind == CollectiveKind::kBroadcast;
}

}  // namespace

std::string describe(const CollectiveCall& call) {
  const char* const name = kCollectiveNames[static_cast<size_t>(call.kind)];
  std::string text = combines(call.kind) ? fmt::format("{} ({}) of {} elements of {}", name,
                                                       kernels::reduction_name(call.reduction),
                                                       call.count, dtype_name(call.dtype))
                                         : fmt::format("{} of {} bytes", name, call.count);
  if (has_root(call.kind)) text += fmt::format(" with root {}", call.root);
  return text;
}

bool is_exchanged(DType dtype) {
  return dtype != DType::kInt16 && kernels::is_combined(dtype);
}

Status check_place(const CommunicatorPlace& place) {
  if (place.size >= 1 && place.rank >= 0 && place.rank < place.size) return Ok();
  return InvalidArgument("expected a rank in [0, {}), found {}", place.size, place.rank);
}

Status Communicator::check(const CollectiveCall& call) const {
  if (!is_exchanged(call.dtype))
    return Unimplemented("devices do not combine elements of type {}", dtype_name(call.dtype));
  if (call.count < 0)
    return InvalidArgument("expected a count that is not negative, found {}", call.count);
  if (has_root(call.kind) && (call.root < 0 || call.root >= size()))
    return InvalidArgument("expected a root in [0, {}), found {}", size(), call.root);
  return Ok();
}

// Every failure breaks the communicator, even bad arguments: the other ranks are already waiting.
Status Communicator::keep(Status status) {
  if (status.ok()) return status;
  state_ = std::move(status).with_note(
      fmt::format("rank {} of {} in {}", rank(), size(), describe(latest_)));
  stop(state_);
  return state_;
}

Status Communicator::start(const CollectiveCall& call, const std::byte* from, std::byte* to) {
  if (!state_.ok()) {
    return Status(StatusCode::kDistributed,
                  "the communicator of the devices is broken and cannot be used any more")
        .with_note(fmt::format("broken by: {}", state_.message()));
  }
  latest_ = call;
  Status status = check(call);
  if (status.ok() && call.count > 0) status = queue(call, from, to);
  return keep(std::move(status));
}

Status Communicator::wait() {
  if (!state_.ok()) return state_;
  return keep(finish());
}

void Communicator::abort(const Status& reason) {
  if (!state_.ok()) return;
  state_ = reason;
  stop(reason);
}

}  // namespace millrace::gpu
