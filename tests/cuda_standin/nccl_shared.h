#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace millrace::standin {

/// What the ranks of a communicator share: a file in memory, mapped by each of them. It starts as
/// zeros. Threads and processes use it in the same way.
///
/// Each call is divided into chunks, numbered from 1 over all calls. A rank writes its part of
/// chunk k into its slot when all ranks have consumed k - 1, sets published to k, and reads the
/// slots of all when all have published k.
struct SharedRanks {
  static constexpr int kMostRanks = 8;
  static constexpr size_t kChunkBytes = 64 * 1024;

  /// A call as its rank states it.
  struct Statement {
    int64_t kind;
    int64_t type;
    int64_t op;
    int64_t root;
    int64_t count;
    bool operator==(const Statement&) const = default;
  };
  struct Rank {
    std::atomic<int> has_joined;
    int device;
    int size;  ///< number of ranks that it states
    std::atomic<uint64_t> published;
    std::atomic<uint64_t> consumed;
    Statement statement;  ///< of the call of the published chunk
    alignas(64) std::array<std::byte, kChunkBytes> slot;
  };
  std::atomic<int> joined;  ///< number of ranks
  std::array<Rank, kMostRanks> ranks;
};

}  // namespace millrace::standin
