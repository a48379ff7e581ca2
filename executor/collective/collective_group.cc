#include "executor/collective/collective_group.h"

#include <algorithm>
#include <cstring>

#include "framework/base/errors.h"

namespace millrace::executor {
namespace {

Status check_bytes(int64_t bytes) {
  if (bytes >= 0) return Ok();
  return InvalidArgument("expected a number of bytes that is not negative, found {}", bytes);
}

}  // namespace

Status CollectiveGroup::check_reduction(DType dtype, int64_t count) const {
  if (!kernels::is_combined(dtype))
    return Unimplemented("cannot combine elements of type {}", dtype_name(dtype));
  if (count < 0) return InvalidArgument("expected a count that is not negative, found {}", count);
  return Ok();
}

Status CollectiveGroup::check_rank(const char* what, int rank) const {
  if (rank >= 0 && rank < size()) return Ok();
  return InvalidArgument("expected a {} in [0, {}), found {}", what, size(), rank);
}

Status CollectiveGroup::refuse() const {
  return Status(StatusCode::kDistributed,
                "the group of ranks is broken and cannot be used any more")
      .with_note(fmt::format("broken by: {}", state_.message()));
}

// \param needs_others  false if there is nothing to exchange, which every rank can tell
template <typename Call>
Status CollectiveGroup::guarded(Status arguments, bool needs_others, Call&& call) {
  if (!state_.ok()) return refuse();
  ++calls_;
  Status status = std::move(arguments);
  if (status.ok() && needs_others && size() > 1) status = call();
  if (status.ok()) return status;
  state_ = status;
  do_abort(status);
  return status;
}

Status CollectiveGroup::all_reduce(DType dtype, std::byte* data, int64_t count,
                                   Reduction reduction) {
  return guarded(check_reduction(dtype, count), count > 0,
                 [&] { return do_all_reduce(dtype, data, count, reduction); });
}

Status CollectiveGroup::reduce(DType dtype, std::byte* data, int64_t count, Reduction reduction,
                               int root) {
  Status status = check_reduction(dtype, count);
  if (status.ok()) status = check_rank("root", root);
  return guarded(std::move(status), count > 0,
                 [&] { return do_reduce(dtype, data, count, reduction, root); });
}

Status CollectiveGroup::broadcast(std::byte* data, int64_t bytes, int root) {
  Status status = check_bytes(bytes);
  if (status.ok()) status = check_rank("root", root);
  return guarded(std::move(status), bytes > 0, [&] { return do_broadcast(data, bytes, root); });
}

Status CollectiveGroup::all_gather(const std::byte* part, int64_t bytes, std::byte* all) {
  Status status = check_bytes(bytes);
  if (status.ok() && size() == 1 && bytes > 0 && part != all) status = copy_alone(part, all, bytes);
  return guarded(std::move(status), bytes > 0, [&] { return do_all_gather(part, bytes, all); });
}

Status CollectiveGroup::reduce_scatter(DType dtype, const std::byte* all, int64_t count,
                                       std::byte* part, Reduction reduction) {
  Status status = check_reduction(dtype, count);
  if (status.ok() && size() == 1 && count > 0 && part != all)
    status = copy_alone(all, part, count * dtype_size(dtype));
  return guarded(std::move(status), count > 0,
                 [&] { return do_reduce_scatter(dtype, all, count, part, reduction); });
}

Status CollectiveGroup::barrier() {
  return guarded(Ok(), /*needs_others=*/true, [&] { return do_barrier(); });
}

Status CollectiveGroup::send(const std::byte* data, int64_t bytes, int to) {
  Status status = check_bytes(bytes);
  if (status.ok()) status = check_rank("receiver", to);
  if (status.ok() && to == rank()) status = InvalidArgument("rank {} sends to itself", to);
  return guarded(std::move(status), bytes > 0, [&] { return do_send(data, bytes, to); });
}

Status CollectiveGroup::receive(std::byte* data, int64_t bytes, int from) {
  Status status = check_bytes(bytes);
  if (status.ok()) status = check_rank("sender", from);
  if (status.ok() && from == rank()) status = InvalidArgument("rank {} receives from itself", from);
  return guarded(std::move(status), bytes > 0, [&] { return do_receive(data, bytes, from); });
}

StatusOr<std::unique_ptr<CollectiveGroup>> CollectiveGroup::subgroup(llvm::ArrayRef<int> members) {
  int own_place = -1;
  for (size_t i = 0; i < members.size(); ++i) {
    MILLRACE_RETURN_IF_ERROR(check_rank("member", members[i]));
    if (std::count(members.begin(), members.end(), members[i]) > 1)
      return InvalidArgument("rank {} is listed twice among the members of a group", members[i]);
    if (members[i] == rank()) own_place = static_cast<int>(i);
  }
  if (own_place < 0)
    return InvalidArgument("rank {} makes a group of which it is not a member", rank());
  if (!state_.ok()) return refuse();
  StatusOr<std::unique_ptr<CollectiveGroup>> made = do_subgroup(members, own_place);
  if (!made.ok()) abort(made.status());
  return made;
}

Status CollectiveGroup::copy_alone(const std::byte* from, std::byte* to, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
  return Ok();
}

void CollectiveGroup::abort(const Status& reason) {
  if (!state_.ok()) return;
  state_ = reason;
  do_abort(reason);
}

}  // namespace millrace::executor
