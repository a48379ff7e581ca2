#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "executor/collective/collective_group.h"

namespace millrace::gpu {
class Context;
}

namespace millrace::executor {

/// True for types of ops that exchange values with other ranks.
bool exchanges_with_ranks(llvm::StringRef op_type);

/// The groups that the collective ops of a process's programs use, by ring number. If no program
/// makes a ring, every number means all ranks of the job; else only rings that were made, and ring
/// 0, exist.
///
/// The ranks meet when the first op needs them. Thread-safety: one thread at a time.
class Rings {
 public:
  using Opener = std::function<StatusOr<std::unique_ptr<CollectiveGroup>>()>;

  /// \param open       joins all ranks of the job; called once
  /// \param endpoints  of the ranks in order, by which programs name them; may be empty
  /// \param rank       rank of this process, known before the ranks meet
  explicit Rings(Opener open, std::vector<std::string> endpoints = {}, int rank = 0);

  [[nodiscard]] int rank() const { return rank_; }

  /// The group of all ranks. Errors: those of open, repeated at every call.
  StatusOr<CollectiveGroup*> world();
  /// Errors: kNotFound if programs have made rings, but not this one.
  [[nodiscard]] Status check_made(int32_t number) const;
  /// The group of a ring. Errors: those of check_made() and world().
  StatusOr<CollectiveGroup*> ring(int32_t number);

  /// From this call on, values in GPU memory are exchanged there (engine nccl), without a copy
  /// through host memory. All ranks must call it, before the first op.
  void use_devices() { uses_devices_ = true; }
  [[nodiscard]] bool uses_devices() const { return uses_devices_; }
  /// The group of a ring for values in the memory of the GPU (device_group.h), created by the first
  /// call for these ranks. Errors: those of ring() and make_device_group().
  StatusOr<CollectiveGroup*> ring_on_device(int32_t number,
                                            const std::shared_ptr<gpu::Context>& context);

  /// Stores the members that an op has listed under a var ("NCCLID"), including this rank's
  /// endpoint.
  void set_id(const std::string& var, std::vector<std::string> members) {
    ids_[var] = std::move(members);
  }
  /// Null if no op has made an id of this name.
  [[nodiscard]] const std::vector<std::string>* find_id(const std::string& var) const;

  /// Makes a ring of the ranks with these endpoints, in this order; empty: of all ranks. Making a
  /// ring again with the same ranks has no effect. Errors: kInvalidArgument if an endpoint is not
  /// one of the job's or is repeated, or if ranks or rank do not match the members; those of
  /// subgroup().
  Status make(int32_t number, const std::vector<std::string>& members, int ranks, int rank);

 private:
  StatusOr<std::vector<int>> ranks_of(const std::vector<std::string>& members);

  Opener open_;
  std::vector<std::string> endpoints_;
  int rank_;
  Status open_error_;
  std::unique_ptr<CollectiveGroup> world_;
  std::map<std::vector<int>, std::unique_ptr<CollectiveGroup>> groups_;  ///< by members
  std::map<int32_t, CollectiveGroup*> rings_;
  std::map<std::string, std::vector<std::string>> ids_;
  bool uses_devices_ = false;
  /// By the host group that each one uses, which must outlive it.
  std::map<CollectiveGroup*, std::unique_ptr<CollectiveGroup>> on_device_;
};

}  // namespace millrace::executor
