#pragma once

#include <cstdint>
#include <vector>

#include "framework/base/status.h"
#include "framework/row_owner.h"

namespace millrace::ps {

/// Maps the keys of a sparse table to servers and to their shards. Every key has exactly one owner.
/// Source: spec/ps_runtime.md section 6.
class SparseRouting {
 public:
  /// Errors: kInvalidArgument if a number is not > 0.
  static StatusOr<SparseRouting> create(int64_t shard_num, int64_t servers);

  [[nodiscard]] int64_t server_of(int64_t key) const { return shard_of(key) / shards_per_server_; }
  /// Index of the shard within the server.
  [[nodiscard]] int64_t local_shard_of(int64_t key) const {
    return shard_of(key) % shards_per_server_;
  }
  [[nodiscard]] int64_t shards_per_server() const { return shards_per_server_; }

 private:
  SparseRouting(int64_t shard_num, int64_t shards_per_server)
      : shard_num_(shard_num), shards_per_server_(shards_per_server) {}
  // keys are distributed over shards like rows over servers
  [[nodiscard]] int64_t shard_of(int64_t key) const { return server_of_row(key, shard_num_); }

  int64_t shard_num_;
  int64_t shards_per_server_;
};

/// A contiguous range of elements.
struct DenseRange {
  int64_t begin = 0;
  int64_t count = 0;
};

/// The range of a dense table on a server: int(n / servers + 1) elements; the last servers have the
/// rest, which may be empty, and there is nothing after the last server.
/// \param elements, server  at least 0  \param servers  at least 1
DenseRange dense_range(int64_t elements, int64_t servers, int64_t server);

/// The ranges of all servers. Errors: kInvalidArgument for a negative count, or if servers is
/// not > 0.
StatusOr<std::vector<DenseRange>> dense_ranges(int64_t elements, int64_t servers);

}  // namespace millrace::ps
