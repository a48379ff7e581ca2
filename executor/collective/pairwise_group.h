#pragma once

#include <vector>

#include <llvm/ADT/STLFunctionalExtras.h>

#include "executor/collective/collective_group.h"

namespace millrace::executor {

/// A group over an engine that only moves bytes between two ranks. Uses rings for large values,
/// recursive doubling for small ones and barriers. All waits are in exchange(), so all of them have
/// a deadline.
class PairwiseGroup : public CollectiveGroup {
 protected:
  explicit PairwiseGroup(const GroupSettings& settings) : CollectiveGroup(settings) {}

  /// What one rank sends and receives at the same time; to or from may be -1 for none.
  struct Exchange {
    const std::byte* out = nullptr;  ///< bytes to send
    int64_t out_bytes = 0;
    int to = -1;
    std::byte* in = nullptr;  ///< memory for what is received
    int64_t in_bytes = 0;     ///< exactly what `from` sends
    int from = -1;
  };
  /// Moves the bytes and waits until both directions are done. Errors: kDistributed.
  virtual Status exchange(const Exchange& bytes) = 0;
  /// Called with received bytes: their offset in the incoming data, and a pointer that is valid
  /// until the function returns.
  using Arrived = llvm::function_ref<Status(int64_t at, const std::byte* data, int64_t bytes)>;
  /// Like exchange(), for incoming data that is used only once. It arrives in segments in order, in
  /// memory of the group; their sizes are multiples of 64 bytes, except for the last one; `in` is
  /// not used. Errors: those of exchange() and of the function.
  virtual Status exchange_segments(const Exchange& bytes, Arrived arrived);

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

 private:
  /// The rank at a distance in the ring.
  [[nodiscard]] int neighbour(int distance) const { return (rank() + distance + size()) % size(); }
  /// log2(size) rounds in which partners exchange all values; size() must be a power of two. All
  /// ranks get the same bits.
  Status reduce_by_doubling(DType dtype, std::byte* data, int64_t count, Reduction reduction);
  /// What this rank sends and receives in one step around the ring: part `rank - step` goes to the
  /// next rank, part `rank - step - 1` arrives in its place in data from the previous one. Parts
  /// without elements are not sent. \param starts  first element of each part, and the end
  [[nodiscard]] Exchange ring_exchange(int step, std::byte* data,
                                       const std::vector<int64_t>& starts,
                                       int64_t element_bytes) const;
  /// Part r starts at rank r + 1 and ends, combined, at rank r. \param starts  of the parts, and
  /// the end
  Status combine_ring(DType dtype, std::byte* data, const std::vector<int64_t>& starts,
                      Reduction reduction);
  /// The parts travel around the ring until all ranks have all of them.
  Status gather_ring(std::byte* data, const std::vector<int64_t>& starts, int64_t element_bytes);

  std::vector<std::byte> scratch_;
  std::vector<std::byte> sums_;
  std::vector<std::byte> copy_;
};

}  // namespace millrace::executor
