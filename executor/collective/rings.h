#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/collective/collective_group.h"

namespace millrace::gpu {
class Context;
}

namespace millrace::executor {

/// The groups that the collective ops of a process's programs use, by ring number. Where no program
/// makes a ring, all numbers mean all ranks of the job; else those that are made, and 0.
///
/// The ranks meet when the first op needs them. Thread-safety: one thread at a time.
class Rings {
 public:
  using Opener = std::function<StatusOr<std::unique_ptr<CollectiveGroup>>()>;

  /// \param open       joins all ranks of the job; called once
  /// \param endpoints  of the ranks in order, by which programs name them; may be empty
  /// \param rank       of this process, known before the ranks meet
  explicit Rings(Opener open, std::vector<std::string> endpoints = {}, int rank = 0);

  [[nodiscard]] int rank() const { return rank_; }

  /// The group of all ranks. Errors: those of open, again at every call.
  StatusOr<CollectiveGroup*> world();
  /// Errors: kNotFound where programs have made rings, but not this one.
  [[nodiscard]] Status check_made(int32_t number) const;
  /// The group of a ring. Errors: those of check_made() and world().
  StatusOr<CollectiveGroup*> ring(int32_t number);

  /// From now on values that lie on GPUs are exchanged there (engine nccl), without a way through
  /// the memory of the process. All ranks say so, before the first op.
  void use_devices() { uses_devices_ = true; }
  [[nodiscard]] bool uses_devices() const { return uses_devices_; }
  /// The group of a ring for values in the memory of the GPU (device_group.h), made by the first
  /// call for these ranks. Errors: those of ring() and make_device_group().
  StatusOr<CollectiveGroup*> ring_on_device(int32_t number,
                                            const std::shared_ptr<gpu::Context>& context);

  /// Remembers the members that an op has named under a var ("NCCLID"), own endpoint included.
  void set_id(const std::string& var, std::vector<std::string> members) {
    ids_[var] = std::move(members);
  }
  /// Null if no op has made an id of this name.
  [[nodiscard]] const std::vector<std::string>* find_id(const std::string& var) const;

  /// Makes a ring of the ranks with these endpoints, in this order; empty: of all. A ring made
  /// twice of the same ranks stays. Errors: kInvalidArgument where an endpoint is none of the
  /// job's or occurs twice, or ranks or rank differ from what the members say; those of subgroup().
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
  /// By the group of processes that each stands on, which ends after it.
  std::map<CollectiveGroup*, std::unique_ptr<CollectiveGroup>> on_device_;
};

}  // namespace millrace::executor
