#pragma once

#include <memory>

#include "executor/collective/collective_group.h"
#include "kernels/gpu/communicator.h"
#include "kernels/gpu/context.h"

namespace millrace::executor {

/// The ranks of a group for values that lie in the memory of their GPUs: pointers of all calls but
/// send() and receive() point there. NCCL moves the values (on emulated devices, their stand-in).
///
/// Before each exchange the ranks meet by the group of processes that they come from. That is where
/// a rank which is lost, late, has failed, or makes another call is noticed and named; what is lost
/// in the middle of an exchange is noticed by the deadline, after which the ranks that are left
/// meet once more in order to see who is missing. So an exchange costs one small one between
/// processes besides, and each call returns when its result is there.
///
/// Source: docs/decisions/0019-nccl.md.
class DeviceGroup final : public CollectiveGroup {
 public:
  /// \param host          the same ranks for values of the process; must outlive the group
  /// \param communicator  of these ranks; null in a group of one, which has nobody to exchange with
  /// \param own_host      host, if nobody else keeps it
  DeviceGroup(CollectiveGroup& host, std::shared_ptr<gpu::Context> context,
              std::unique_ptr<gpu::Communicator> communicator,
              std::unique_ptr<CollectiveGroup> own_host = nullptr);

  [[nodiscard]] std::string_view engine() const override { return "nccl"; }

 private:
  struct Meeting;

  Status do_all_reduce(DType dtype, std::byte* data, int64_t count, Reduction reduction) override;
  Status do_reduce(DType dtype, std::byte* data, int64_t count, Reduction reduction,
                   int root) override;
  Status do_broadcast(std::byte* data, int64_t bytes, int root) override;
  Status do_all_gather(const std::byte* part, int64_t bytes, std::byte* all) override;
  Status do_reduce_scatter(DType dtype, const std::byte* all, int64_t count, std::byte* part,
                           Reduction reduction) override;
  Status do_barrier() override;
  Status do_send(const std::byte* data, int64_t bytes, int to) override;
  Status do_receive(std::byte* data, int64_t bytes, int from) override;
  StatusOr<std::unique_ptr<CollectiveGroup>> do_subgroup(llvm::ArrayRef<int> members,
                                                         int own_place) override;
  void do_abort(const Status& reason) override;
  Status copy_alone(const std::byte* from, std::byte* to, int64_t bytes) override;

  Status meet(const Meeting& own);
  /// Meets for a call, makes it, waits for it.
  Status exchange(const gpu::CollectiveCall& call, const std::byte* from, std::byte* to);

  std::unique_ptr<CollectiveGroup> own_host_;
  CollectiveGroup& host_;
  std::shared_ptr<gpu::Context> context_;
  std::unique_ptr<gpu::Communicator> communicator_;
};

/// Makes the group on top of that of the processes, by which rank 0 hands out the id; all ranks
/// call it. \param host  must outlive the group
/// Errors: kUnimplemented where a rank's GPU has no library for it; kDistributed where a rank is
/// lost on the way; those of gpu::Collectives.
StatusOr<std::unique_ptr<CollectiveGroup>> make_device_group(CollectiveGroup& host,
                                                             std::shared_ptr<gpu::Context> context);

}  // namespace millrace::executor
