#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/types.h"
#include "kernels/cpu/collective/reduce_parts.h"

namespace millrace::executor {

using kernels::Reduction;

/// Settings of one rank of a group.
struct GroupSettings {
  int rank = 0;  ///< of this process or thread, in [0, size)
  int size = 1;  ///< number of ranks
  /// Longest time that one call waits for the other ranks.
  int64_t timeout_ms = 600'000;
};

/// Ranks that exchange values: threads of a process or processes, through one of several engines.
///
/// All ranks make the same calls in the same order with equal types and counts. Each call returns
/// when the rank's own memory has the result. The order in which elements are combined does not
/// depend on timing. The first failed call breaks the group: a lost or slow rank is named within
/// the deadline, the other ranks are notified if the engine supports that, and every later call
/// reports that the group is broken. Errors: kDistributed; kInvalidArgument and kUnimplemented for
/// bad arguments, which also break the group because the other ranks wait.
///
/// Element types: all floats and integers. Thread-safety: one call at a time per rank.
class CollectiveGroup {
 public:
  CollectiveGroup(const CollectiveGroup&) = delete;
  CollectiveGroup& operator=(const CollectiveGroup&) = delete;
  virtual ~CollectiveGroup() = default;

  /// Facts of the group; the deadline is that of one call.
  [[nodiscard]] int rank() const { return settings_.rank; }
  [[nodiscard]] int size() const { return settings_.size; }
  [[nodiscard]] int64_t timeout_ms() const { return settings_.timeout_ms; }
  /// "threads", "shm", "gloo", "mpi" or "nccl".
  [[nodiscard]] virtual std::string_view engine() const = 0;
  /// Ok, or what broke the group.
  [[nodiscard]] const Status& state() const { return state_; }
  /// Number of calls so far.
  [[nodiscard]] int64_t calls() const { return calls_; }

  /// Every rank gets the combination of all elements. \param count  elements
  Status all_reduce(DType dtype, std::byte* data, int64_t count,
                    Reduction reduction = Reduction::kSum);
  /// The root gets the combination; data of the other ranks is not changed.
  Status reduce(DType dtype, std::byte* data, int64_t count, Reduction reduction, int root);
  /// Every rank gets the bytes of the root.
  Status broadcast(std::byte* data, int64_t bytes, int root);
  /// all gets the parts of all ranks in order. \param bytes  of each part
  Status all_gather(const std::byte* part, int64_t bytes, std::byte* all);
  /// Rank r gets the r-th of size() equal parts of the combination.
  /// \param count  elements of a part
  Status reduce_scatter(DType dtype, const std::byte* all, int64_t count, std::byte* part,
                        Reduction reduction = Reduction::kSum);
  /// Returns when all ranks have called it.
  Status barrier();
  /// Between two ranks; others are not involved. Several messages to one rank arrive in order.
  Status send(const std::byte* data, int64_t bytes, int to);
  Status receive(std::byte* data, int64_t bytes, int from);

  /// A group of some of these ranks, in the given order; only they call it, with the same list.
  /// Errors: kInvalidArgument for a list without this rank, with repeats or unknown ranks.
  StatusOr<std::unique_ptr<CollectiveGroup>> subgroup(llvm::ArrayRef<int> members);

  /// Breaks the group because of a failure of this rank elsewhere, so that the others do not wait
  /// for it. Keeps the first reason.
  void abort(const Status& reason);

 protected:
  explicit CollectiveGroup(const GroupSettings& settings) : settings_(settings) {}

  /// Implement the functions of the same names. Arguments have been checked; counts are positive,
  /// and there are at least two ranks.
  virtual Status do_all_reduce(DType dtype, std::byte* data, int64_t count,
                               Reduction reduction) = 0;
  virtual Status do_reduce(DType dtype, std::byte* data, int64_t count, Reduction reduction,
                           int root) = 0;
  virtual Status do_broadcast(std::byte* data, int64_t bytes, int root) = 0;
  virtual Status do_all_gather(const std::byte* part, int64_t bytes, std::byte* all) = 0;
  virtual Status do_reduce_scatter(DType dtype, const std::byte* all, int64_t count,
                                   std::byte* part, Reduction reduction) = 0;
  virtual Status do_barrier() = 0;
  virtual Status do_send(const std::byte* data, int64_t bytes, int to) = 0;
  virtual Status do_receive(std::byte* data, int64_t bytes, int from) = 0;
  virtual StatusOr<std::unique_ptr<CollectiveGroup>> do_subgroup(llvm::ArrayRef<int> members,
                                                                 int own_place) = 0;
  /// Notifies the other ranks, if the engine supports that.
  virtual void do_abort(const Status& reason) = 0;
  /// Copies the result in a group with only one rank.
  virtual Status copy_alone(const std::byte* from, std::byte* to, int64_t bytes);

  [[nodiscard]] const GroupSettings& settings() const { return settings_; }

 private:
  /// Check arguments. Errors: kUnimplemented for types that cannot be combined; kInvalidArgument.
  Status check_reduction(DType dtype, int64_t count) const;
  Status check_rank(const char* what, int rank) const;
  /// The error of every call after the group broke; it names the reason.
  Status refuse() const;
  /// Makes a call unless the group is broken, and breaks the group if the call fails.
  /// \param needs_others  false if there is nothing to exchange, which every rank can tell
  template <typename Call>
  Status guarded(Status arguments, bool needs_others, Call&& call);

  GroupSettings settings_;
  Status state_;
  int64_t calls_ = 0;
};

}  // namespace millrace::executor
