#pragma once

#include <memory>

#include "executor/collective/collective_group.h"
#include "kernels/gpu/communicator.h"
#include "kernels/gpu/context.h"

namespace millrace::executor {

/// The ranks of a group for values in the memory of their GPUs: the pointers of all calls except
/// send() and receive() are device pointers. NCCL moves the values (on emulated devices, its
/// replacement).
///
/// Before each exchange the ranks meet through the host group of processes. There, a rank that is
/// lost, late, has failed, or makes another call is detected and named. A rank that is lost during
/// an exchange is detected by the deadline, after which the remaining ranks meet once more to find
/// out which is missing. So each exchange includes one small exchange between processes, and each
/// call returns when its result is complete.
///
/// Source: docs/decisions/0019-nccl.md.
class DeviceGroup final : public CollectiveGroup {
 public:
  /// \param host          the same ranks for values of the process; must outlive the group
  /// \param communicator  of these ranks; null in a group of one rank
  /// \param own_host      host, if this group owns it
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
  /// Meets the other ranks, starts the call and waits for its end.
  Status exchange(const gpu::CollectiveCall& call, const std::byte* from, std::byte* to);

  std::unique_ptr<CollectiveGroup> own_host_;
  CollectiveGroup& host_;
  std::shared_ptr<gpu::Context> context_;
  std::unique_ptr<gpu::Communicator> communicator_;
};

/// Makes a GPU group for the ranks of a host group, through which rank 0 distributes the NCCL id;
/// all ranks call it.
/// \param host  must outlive the group
/// Errors: kUnimplemented if a rank's GPU has no such library; kDistributed if a rank is lost
/// meanwhile; those of gpu::Collectives.
StatusOr<std::unique_ptr<CollectiveGroup>> make_device_group(CollectiveGroup& host,
                                                             std::shared_ptr<gpu::Context> context);

}  // namespace millrace::executor
