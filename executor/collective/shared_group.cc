#include "executor/collective/shared_group.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "framework/base/errors.h"

namespace millrace::executor {
namespace shared_group {
namespace {

enum CallKind : uint32_t {
  kAllReduceCall,
  kReduceCall,
  kBroadcastCall,
  kAllGatherCall,
  kReduceScatterCall,
  kBarrierCall,
};
constexpr std::array<const char*, 6> kCallNames = {"all_reduce", "reduce",         "broadcast",
                                                   "all_gather", "reduce_scatter", "barrier"};

// Up to this size one round with more additions is cheaper than two rounds.
constexpr int64_t kSmallBytes = 8 << 10;

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace
}  // namespace shared_group

SharedGroup::SharedGroup(const GroupSettings& settings, std::shared_ptr<SharedSegment> segment,
                         std::unique_ptr<CollectiveGroup> found_by)
    : CollectiveGroup(settings),
      found_by_(std::move(found_by)),
      segment_(std::move(segment)),
      board_(segment_->board()) {}

SharedGroup::~SharedGroup() {
  board_.leave(rank());
  if (found_by_ != nullptr && !state().ok()) found_by_->abort(state());
}

std::string SharedGroup::describe(const BoardCall& call) const {
  using namespace shared_group;
  const char* const name = kCallNames[call.kind % kCallNames.size()];
  switch (call.kind) {
    case kBarrierCall:
      return name;
    case kBroadcastCall:
      return fmt::format("{} of {} bytes from rank {}", name, call.count, call.root);
    case kAllGatherCall:
      return fmt::format("{} of {} bytes", name, call.count);
    default:
      return fmt::format("{} ({}) of {} elements of {}", name,
                         kernels::reduction_name(static_cast<Reduction>(call.reduction)),
                         call.count, dtype_name(static_cast<DType>(call.dtype)));
  }
}

Status SharedGroup::meet(const BoardCall& call) {
  ++round_;
  board_.call(rank(), round_) = call;
  board_.arrive(rank(), round_);
  if (Status status = board_.wait_for_all(rank(), round_, timeout_ms()); !status.ok()) {
    return std::move(status).with_note(
        fmt::format("rank {} of {} in call {}, {}", rank(), size(), calls(), describe(call)));
  }
  for (int other = 0; other < size(); ++other) {
    const BoardCall& theirs = board_.call(other, round_);
    if (theirs.agrees_with(call)) continue;
    return {StatusCode::kDistributed,
            fmt::format("the ranks do not agree in call {}: rank {} makes {}, rank {} makes {}",
                        calls(), rank(), describe(call), other, describe(theirs))};
  }
  return Ok();
}

SharedGroup::Range SharedGroup::share(int64_t count, int rank) const {
  // whole cache lines, whatever the element size
  constexpr int64_t kGrain = 64;
  const int64_t grains = (count + kGrain - 1) / kGrain;
  const auto at = [&](int64_t r) { return std::min(grains * r / size() * kGrain, count); };
  return {at(rank), at(rank + 1)};
}

int64_t SharedGroup::elements_of_slot(int64_t element_bytes) const {
  return static_cast<int64_t>(board_.shape().slot_bytes) / element_bytes;
}

Status SharedGroup::combine(const BoardCall& call, std::byte* data, bool wanted) {
  using namespace shared_group;
  const int64_t bytes = call.count * dtype_size(static_cast<DType>(call.dtype));
  if (bytes <= kSmallBytes) return combine_small(call, data, bytes, wanted);
  if (segment_->same_process()) return combine_threads(call, data, call.kind == kAllReduceCall);
  return combine_pieces(call, data, wanted);
}

Status SharedGroup::combine_small(const BoardCall& call, std::byte* data, int64_t bytes,
                                  bool wanted) {
  ++use_;
  shared_group::copy_bytes(slot(rank()), data, bytes);
  MILLRACE_RETURN_IF_ERROR(meet(call));
  if (!wanted) return Ok();
  Parts parts;
  for (int r = 0; r < size(); ++r) parts.push_back(slot(r));
  return kernels::reduce_parts(static_cast<DType>(call.dtype),
                               static_cast<Reduction>(call.reduction), parts, data, call.count);
}

// Each rank combines its share of the elements and writes the result to all ranks, or to the root.
Status SharedGroup::combine_threads(const BoardCall& call, std::byte* data, bool everywhere) {
  BoardCall mine = call;
  mine.data = data;
  MILLRACE_RETURN_IF_ERROR(meet(mine));
  const auto dtype = static_cast<DType>(call.dtype);
  const Range range = share(call.count, rank());
  Parts parts;
  Results results;
  for (int r = 0; r < size(); ++r) {
    std::byte* const at = board_.call(r, round_).data + range.begin * dtype_size(dtype);
    parts.push_back(at);
    if (everywhere || r == call.root) results.push_back(at);
  }
  MILLRACE_RETURN_IF_ERROR(kernels::reduce_parts(dtype, static_cast<Reduction>(call.reduction),
                                                 parts, results, range.end - range.begin));
  return meet(call);
}

// Pieces that fit the slots are copied in, combined in place in shares, and copied out.
Status SharedGroup::combine_pieces(const BoardCall& call, std::byte* data, bool wanted) {
  using namespace shared_group;
  const auto dtype = static_cast<DType>(call.dtype);
  const int64_t size_of = dtype_size(dtype);
  const int64_t piece = elements_of_slot(size_of);
  for (int64_t done = 0; done < call.count; done += piece) {
    const int64_t count = std::min(piece, call.count - done);
    std::byte* const at = data + done * size_of;
    ++use_;
    copy_bytes(slot(rank()), at, count * size_of);
    MILLRACE_RETURN_IF_ERROR(meet(call));
    const Range own = share(count, rank());
    Parts parts;
    Results results{slot(rank()) + own.begin * size_of};
    for (int r = 0; r < size(); ++r) parts.push_back(slot(r) + own.begin * size_of);
    if (wanted) results.push_back(at + own.begin * size_of);
    MILLRACE_RETURN_IF_ERROR(kernels::reduce_parts(dtype, static_cast<Reduction>(call.reduction),
                                                   parts, results, own.end - own.begin));
    MILLRACE_RETURN_IF_ERROR(meet(call));
    for (int r = 0; r < size() && wanted; ++r) {
      if (r == rank()) continue;
      const Range range = share(count, r);
      copy_bytes(at + range.begin * size_of, slot(r) + range.begin * size_of,
                 (range.end - range.begin) * size_of);
    }
  }
  return Ok();
}

Status SharedGroup::do_all_reduce(DType dtype, std::byte* data, int64_t count,
                                  Reduction reduction) {
  return combine({.kind = shared_group::kAllReduceCall,
                  .dtype = static_cast<int32_t>(dtype),
                  .reduction = static_cast<int32_t>(reduction),
                  .count = count},
                 data, true);
}

Status SharedGroup::do_reduce(DType dtype, std::byte* data, int64_t count, Reduction reduction,
                              int root) {
  return combine({.kind = shared_group::kReduceCall,
                  .dtype = static_cast<int32_t>(dtype),
                  .reduction = static_cast<int32_t>(reduction),
                  .root = root,
                  .count = count},
                 data, rank() == root);
}

Status SharedGroup::do_broadcast(std::byte* data, int64_t bytes, int root) {
  using namespace shared_group;
  BoardCall call{.kind = kBroadcastCall, .root = root, .count = bytes};
  if (segment_->same_process() && bytes > kSmallBytes) {
    call.source = data;
    MILLRACE_RETURN_IF_ERROR(meet(call));
    if (rank() != root) copy_bytes(data, board_.call(root, round_).source, bytes);
    return meet(call);
  }
  const int64_t piece = elements_of_slot(1);
  for (int64_t done = 0; done < bytes; done += piece) {
    const int64_t now = std::min(piece, bytes - done);
    ++use_;
    if (rank() == root) copy_bytes(slot(root), data + done, now);
    MILLRACE_RETURN_IF_ERROR(meet(call));
    if (rank() != root) copy_bytes(data + done, slot(root), now);
  }
  return Ok();
}

Status SharedGroup::do_all_gather(const std::byte* part, int64_t bytes, std::byte* all) {
  using namespace shared_group;
  BoardCall call{.kind = kAllGatherCall, .count = bytes};
  if (segment_->same_process() && bytes > kSmallBytes) {
    call.source = part;
    MILLRACE_RETURN_IF_ERROR(meet(call));
    for (int r = 0; r < size(); ++r) {
      if (all + r * bytes != board_.call(r, round_).source)
        copy_bytes(all + r * bytes, board_.call(r, round_).source, bytes);
    }
    return meet(call);
  }
  const int64_t piece = elements_of_slot(1);
  for (int64_t done = 0; done < bytes; done += piece) {
    const int64_t now = std::min(piece, bytes - done);
    ++use_;
    copy_bytes(slot(rank()), part + done, now);
    MILLRACE_RETURN_IF_ERROR(meet(call));
    for (int r = 0; r < size(); ++r) copy_bytes(all + r * bytes + done, slot(r), now);
  }
  return Ok();
}

Status SharedGroup::do_reduce_scatter(DType dtype, const std::byte* all, int64_t count,
                                      std::byte* part, Reduction reduction) {
  using namespace shared_group;
  const int64_t size_of = dtype_size(dtype);
  BoardCall call{.kind = kReduceScatterCall,
                 .dtype = static_cast<int32_t>(dtype),
                 .reduction = static_cast<int32_t>(reduction),
                 .count = count};
  if (segment_->same_process() && count * size_of * size() > kSmallBytes) {
    call.source = all;
    MILLRACE_RETURN_IF_ERROR(meet(call));
    Parts parts;
    for (int r = 0; r < size(); ++r)
      parts.push_back(board_.call(r, round_).source + rank() * count * size_of);
    MILLRACE_RETURN_IF_ERROR(kernels::reduce_parts(dtype, reduction, parts, part, count));
    return meet(call);
  }
  const int64_t piece = elements_of_slot(size_of) / size();
  for (int64_t done = 0; done < count; done += piece) {
    const int64_t now = std::min(piece, count - done);
    ++use_;
    for (int r = 0; r < size(); ++r)
      copy_bytes(slot(rank()) + r * now * size_of, all + (r * count + done) * size_of,
                 now * size_of);
    MILLRACE_RETURN_IF_ERROR(meet(call));
    Parts parts;
    for (int r = 0; r < size(); ++r) parts.push_back(slot(r) + rank() * now * size_of);
    MILLRACE_RETURN_IF_ERROR(
        kernels::reduce_parts(dtype, reduction, parts, part + done * size_of, now));
  }
  return Ok();
}

Status SharedGroup::do_barrier() {
  return meet({.kind = shared_group::kBarrierCall});
}

Status SharedGroup::do_send(const std::byte* data, int64_t bytes, int to) {
  return board_.send(rank(), to, data, bytes, timeout_ms());
}

Status SharedGroup::do_receive(std::byte* data, int64_t bytes, int from) {
  return board_.receive(from, rank(), data, bytes, timeout_ms());
}

StatusOr<std::unique_ptr<CollectiveGroup>> SharedGroup::do_subgroup(llvm::ArrayRef<int> members,
                                                                    int own_place) {
  const auto ranks = static_cast<int>(members.size());
  std::array<char, SharedSegment::kKeyBytes> message{};
  auto* const bytes = reinterpret_cast<std::byte*>(message.data());
  std::shared_ptr<SharedSegment> segment;
  if (own_place == 0) {
    std::string key;
    MILLRACE_ASSIGN_OR_RETURN(segment, segment_->create(ranks, key));
    if (key.size() >= message.size())
      return Internal("the name '{}' of a piece of shared memory is too long", key);
    std::copy(key.begin(), key.end(), message.begin());
    for (const int member : members.drop_front())
      MILLRACE_RETURN_IF_ERROR(do_send(bytes, message.size(), member));
  } else {
    MILLRACE_RETURN_IF_ERROR(do_receive(bytes, message.size(), members[0]));
    MILLRACE_ASSIGN_OR_RETURN(segment, segment_->attach(ranks, own_place, message.data()));
  }
  GroupSettings own = settings();
  own.rank = own_place;
  own.size = ranks;
  auto group = std::make_unique<SharedGroup>(own, std::move(segment));
  MILLRACE_RETURN_IF_ERROR(group->barrier());
  if (own_place == 0) group->segment_->complete();
  return std::unique_ptr<CollectiveGroup>(std::move(group));
}

void SharedGroup::do_abort(const Status& reason) {
  board_.fail(reason.message());
}

}  // namespace millrace::executor
