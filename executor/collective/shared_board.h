#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <llvm/ADT/STLFunctionalExtras.h>

#include "framework/base/status.h"

namespace millrace::executor {

/// Describes the call that a rank is in, so that mismatched calls of ranks are detected.
struct BoardCall {
  uint32_t kind = 0;  ///< the function of CollectiveGroup
  int32_t dtype = 0;
  int32_t reduction = 0;
  int32_t root = 0;   ///< of calls that have one
  int64_t count = 0;  ///< elements or bytes, as the call counts them
  /// The memory of the rank, for threads of the same process; other processes ignore it.
  std::byte* data = nullptr;          ///< read and written by the other ranks
  const std::byte* source = nullptr;  ///< only read by them

  /// True if both are the same call, apart from the memory.
  [[nodiscard]] bool agrees_with(const BoardCall& other) const {
    return kind == other.kind && dtype == other.dtype && reduction == other.reduction &&
           root == other.root && count == other.count;
  }
};

/// Memory that the ranks of a group share: which rounds each rank has reached, what each does, and
/// space for values.
///
/// A view of bytes() bytes of memory, initially zero, which several processes may map. Ranks meet
/// in rounds: each arrives, then waits for the others, first spinning and later sleeping. A rank is
/// never more than one round ahead of another, so data that a rank wrote for a round may be read
/// until that rank arrives in the round after the next.
class SharedBoard {
 public:
  static constexpr int kMostRanks = 64;

  struct Shape {
    int ranks = 1;
    size_t slot_bytes = 0;     ///< of each of the two slots of a rank
    size_t mailbox_bytes = 0;  ///< between two ranks, in each direction
    bool operator==(const Shape&) const = default;
  };
  /// Size of the memory that a board of this shape needs.
  static size_t bytes(const Shape& shape);

  /// \param memory   aligned to a page; must outlive the board
  /// \param is_lost  true if a rank has ended without leaving; polled while waiting
  SharedBoard(std::byte* memory, const Shape& shape, std::function<bool(int)> is_lost);

  [[nodiscard]] const Shape& shape() const { return shape_; }

  /// The rank's call in this round; others may read it once the rank has arrived.
  BoardCall& call(int rank, uint64_t round);
  /// One of the two slots of the rank, by turns.
  [[nodiscard]] std::byte* slot(int rank, uint64_t use) const;

  /// Waits once until all ranks have mapped the memory; before any round.
  Status gather(int rank, int64_t timeout_ms);

  /// Marks that the rank has arrived in the round; rounds count from 1.
  void arrive(int rank, uint64_t round);
  /// Waits until all ranks have arrived in the round. Errors: kDistributed, naming the ranks that
  /// have not arrived in time, have left, or have ended; or the reason that a rank passed to
  /// fail().
  Status wait_for_all(int rank, uint64_t round, int64_t timeout_ms);

  /// Moves bytes through the mailbox of two ranks, in chunks that fit.
  Status send(int from, int to, const std::byte* data, int64_t bytes, int64_t timeout_ms);
  Status receive(int from, int to, std::byte* data, int64_t bytes, int64_t timeout_ms);

  /// Marks that the rank leaves and takes part in no later round.
  void leave(int rank);
  /// Ends the waits of all ranks with this reason; the first reason is kept.
  void fail(const std::string& reason);
  [[nodiscard]] bool failed() const;

 private:
  struct Header;
  struct Line;
  struct Mailbox;
  [[nodiscard]] Header& header() const;
  [[nodiscard]] Line& line(int rank) const;
  [[nodiscard]] Mailbox& mailbox(int from, int to) const;
  /// Wakes the ranks that sleep; one atomic read if there are none.
  void ring_bell();
  /// Sleeps until the bell differs from the number passed, at most ms milliseconds.
  void sleep(uint32_t bell, int64_t ms);
  /// \param partner     the rank that is waited for; -1: all
  /// \param has_arrived true for ranks that need not be waited for
  Status wait(int64_t timeout_ms, int partner, llvm::function_ref<bool()> done,
              llvm::function_ref<bool(int)> has_arrived);
  [[nodiscard]] Status absent(int partner, llvm::function_ref<bool(int)> has_arrived,
                              int64_t waited_ms, bool in_time);

  std::byte* memory_;
  Shape shape_;
  std::function<bool(int)> is_lost_;
  int spins_;
};

}  // namespace millrace::executor
