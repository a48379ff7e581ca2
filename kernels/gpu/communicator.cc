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
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBfloat16:
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kInt8:
    case DType::kUint8:
    case DType::kInt32:
    case DType::kInt64:
      return true;
    default:
      return false;
  }
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

// A failure breaks the communicator, also by bad arguments: the other ranks wait.
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

Status Communicator::all_reduce(DType dtype, std::byte* data, int64_t count, Reduction reduction) {
  return start(
      {.kind = CollectiveKind::kAllReduce, .dtype = dtype, .reduction = reduction, .count = count},
      data, data);
}

Status Communicator::reduce(DType dtype, std::byte* data, int64_t count, Reduction reduction,
                            int root) {
  return start({.kind = CollectiveKind::kReduce,
                .dtype = dtype,
                .reduction = reduction,
                .root = root,
                .count = count},
               data, data);
}

Status Communicator::broadcast(std::byte* data, int64_t bytes, int root) {
  return start({.kind = CollectiveKind::kBroadcast, .root = root, .count = bytes}, data, data);
}

Status Communicator::all_gather(const std::byte* part, int64_t bytes, std::byte* all) {
  return start({.kind = CollectiveKind::kAllGather, .count = bytes}, part, all);
}

Status Communicator::reduce_scatter(DType dtype, const std::byte* all, int64_t count,
                                    std::byte* part, Reduction reduction) {
  return start({.kind = CollectiveKind::kReduceScatter,
                .dtype = dtype,
                .reduction = reduction,
                .count = count},
               all, part);
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
