#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <llvm/ADT/STLFunctionalExtras.h>

#include "framework/base/status.h"

namespace millrace::executor {

/// What a rank says about the call that it is in, so that ranks which do not agree notice.
struct BoardCall {
  uint32_t kind = 0;  ///< of CollectiveGroup's functions
  int32_t dtype = 0;
  int32_t reduction = 0;
  int32_t root = 0;
  int64_t count = 0;
  /// Where threads of one process find the memory of the rank; other processes do not look.
  std::byte* data = nullptr;
  const std::byte* source = nullptr;

  [[nodiscard]] bool agrees_with(const BoardCall& other) const {
    return kind == other.kind && dtype == other.dtype && reduction == other.reduction &&
           root == other.root && count == other.count;
  }
};

/// Memory that the ranks of a group share: who has come how often, what each does, room for values.
///
/// A view of memory of bytes() bytes that was zero at first; it may be mapped by several processes.
/// Ranks meet in rounds: each arrives, then waits for the others, spinning first and sleeping
/// later. A rank is never more than one round ahead of another, so what a rank has written for a
/// round may be read until it arrives in the round after the next.
class SharedBoard {
 public:
  static constexpr int kMostRanks = 64;

  struct Shape {
    int ranks = 1;
    size_t slot_bytes = 0;     ///< of each of the two slots of a rank
    size_t mailbox_bytes = 0;  ///< between two ranks, in each direction
    bool operator==(const Shape&) const = default;
  };
  static size_t bytes(const Shape& shape);

  /// \param memory   aligned to a page; must outlive the board
  /// \param is_lost  says that a rank has ended without leaving; asked now and then while waiting
  SharedBoard(std::byte* memory, const Shape& shape, std::function<bool(int)> is_lost);

  [[nodiscard]] const Shape& shape() const { return shape_; }

  /// What the rank does in this round; may be read by others once it has arrived.
  BoardCall& call(int rank, uint64_t round);
  [[nodiscard]] std::byte* slot(int rank, uint64_t use) const;

  /// Waits once until all ranks have mapped the memory; before any round.
  Status gather(int rank, int64_t timeout_ms);

  /// Says that the rank has come to the round; rounds count from 1.
  void arrive(int rank, uint64_t round);
  /// Waits until all ranks have come to the round. Errors: kDistributed, naming the ranks that have
  /// not come in time, have left, or have ended; or the reason that a rank has given to fail().
  Status wait_for_all(int rank, uint64_t round, int64_t timeout_ms);

  /// Moves bytes through the mailbox of two ranks, as much as fits at a time.
  Status send(int from, int to, const std::byte* data, int64_t bytes, int64_t timeout_ms);
  Status receive(int from, int to, std::byte* data, int64_t bytes, int64_t timeout_ms);

  /// The rank will not come again.
  void leave(int rank);
  /// Ends the waits of all ranks with this reason; the first one counts.
  void fail(const std::string& reason);
  [[nodiscard]] bool failed() const;

 private:
  struct Header;
  struct Line;
  struct Mailbox;
  [[nodiscard]] Header& header() const;
  [[nodiscard]] Line& line(int rank) const;
  [[nodiscard]] Mailbox& mailbox(int from, int to) const;
  void ring_bell();
  void sleep(uint32_t bell, int64_t ms);
  /// \param partner  the rank that is waited for; -1: all
  /// \param has_come says of a rank that it need not be waited for
  Status wait(int64_t timeout_ms, int partner, llvm::function_ref<bool()> done,
              llvm::function_ref<bool(int)> has_come);
  [[nodiscard]] Status absent(int partner, llvm::function_ref<bool(int)> has_come,
                              int64_t waited_ms, bool in_time);

  std::byte* memory_;
  Shape shape_;
  std::function<bool(int)> is_lost_;
  int spins_;
};

}  // namespace millrace::executor
