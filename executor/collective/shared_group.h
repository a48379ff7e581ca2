#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "executor/collective/collective_group.h"
#include "executor/collective/shared_board.h"

namespace millrace::executor {

/// Memory shared by the ranks of one group; can create such memory for a subgroup.
class SharedSegment {
 public:
  SharedSegment() = default;
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  virtual ~SharedSegment() = default;

  [[nodiscard]] virtual SharedBoard& board() = 0;
  /// True if ranks are threads of one process, which can access each other's memory; processes copy
  /// through the slots.
  [[nodiscard]] virtual bool same_process() const = 0;
  /// Makes a segment for the given number of ranks.
  /// \param key  receives what attach() needs, at most kKeyBytes. Errors: kResource.
  virtual StatusOr<std::shared_ptr<SharedSegment>> create(int ranks, std::string& key) = 0;
  /// Joins a segment that another rank has created. Errors: kDistributed.
  virtual StatusOr<std::shared_ptr<SharedSegment>> attach(int ranks, int rank,
                                                          const std::string& key) = 0;
  /// Called when all ranks have attached.
  virtual void complete() = 0;

  static constexpr size_t kKeyBytes = 128;
};

/// The group of one rank whose memory is shared with the others.
///
/// Small values are copied into a slot of the rank; after one round every rank combines all slots.
/// Large values are combined in equal shares, one per rank, and the results are distributed:
/// threads access each other's memory, processes use chunks that fit their slots. Elements are
/// always combined in the order of ranks.
class SharedGroup final : public CollectiveGroup {
 public:
  /// \param found_by  the group through which the ranks found each other, if any. It is destroyed
  /// after this one, and is broken when this one breaks.
  SharedGroup(const GroupSettings& settings, std::shared_ptr<SharedSegment> segment,
              std::unique_ptr<CollectiveGroup> found_by = nullptr);
  SharedGroup(const SharedGroup&) = delete;
  SharedGroup& operator=(const SharedGroup&) = delete;
  ~SharedGroup() override;

  [[nodiscard]] std::string_view engine() const override {
    return segment_->same_process() ? "threads" : "shm";
  }

 private:
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

  struct Range {
    int64_t begin;  ///< first element
    int64_t end;    ///< one past the last
  };
  using Parts = llvm::SmallVector<const std::byte*, 8>;
  using Results = llvm::SmallVector<std::byte*, 8>;

  /// One round: publishes this rank's call and waits until all others make the same call.
  Status meet(const BoardCall& call);
  /// The call in words, for messages.
  [[nodiscard]] std::string describe(const BoardCall& call) const;
  /// The elements that a rank combines: multiples of 64, so that no two ranks write to a cache
  /// line.
  [[nodiscard]] Range share(int64_t count, int rank) const;
  /// Slot of a rank for the current use.
  [[nodiscard]] std::byte* slot(int rank) const { return board_.slot(rank, use_); }
  /// Number of elements that fit a slot and can be divided evenly.
  [[nodiscard]] int64_t elements_of_slot(int64_t element_bytes) const;
  /// Chooses one of the following functions by the size of the values.
  /// \param wanted  this rank gets the result
  Status combine(const BoardCall& call, std::byte* data, bool wanted);
  /// Copies the values into the slot; after one round each rank that wants the result combines all
  /// slots.
  Status combine_small(const BoardCall& call, std::byte* data, int64_t bytes, bool wanted);
  /// Each rank combines its share directly from the memory of the others and writes it to all, or
  /// to the root.
  Status combine_threads(const BoardCall& call, std::byte* data, bool everywhere);
  /// Chunks that fit the slots are copied in, combined in shares and copied out.
  Status combine_pieces(const BoardCall& call, std::byte* data, bool wanted);

  std::unique_ptr<CollectiveGroup> found_by_;
  std::shared_ptr<SharedSegment> segment_;
  SharedBoard& board_;
  uint64_t round_ = 0;
  uint64_t use_ = 0;  ///< counts uses of the slots; every use has at least one round
};

/// Makes groups of threads of this process, one per rank. Each is used by one thread.
/// Errors: kInvalidArgument for a size outside [1, 64].
StatusOr<std::vector<std::unique_ptr<CollectiveGroup>>> make_thread_groups(
    int size, int64_t timeout_ms = GroupSettings().timeout_ms);

}  // namespace millrace::executor
