#include "ps/table/routing.h"

#include <algorithm>

#include "framework/base/errors.h"

namespace millrace::ps {

StatusOr<SparseRouting> SparseRouting::create(int64_t shard_num, int64_t servers) {
  if (shard_num < 1) return InvalidArgument("shard_num is {}, expected at least 1", shard_num);
  if (servers < 1) return InvalidArgument("a table has {} servers, expected at least 1", servers);
  return SparseRouting(shard_num, (shard_num + servers - 1) / servers);
}

DenseRange dense_range(int64_t elements, int64_t servers, int64_t server) {
  const int64_t most = elements / servers + 1;
  const int64_t begin = std::min(most * server, elements);
  return {begin, std::min(most, elements - begin)};
}

StatusOr<std::vector<DenseRange>> dense_ranges(int64_t elements, int64_t servers) {
  if (elements < 0)
    return InvalidArgument("a dense table has {} elements, expected at least 0", elements);
  if (servers < 1) return InvalidArgument("a table has {} servers, expected at least 1", servers);
  std::vector<DenseRange> ranges;
  for (int64_t server = 0; server < servers; ++server)
    ranges.push_back(dense_range(elements, servers, server));
  return ranges;
}

}  // namespace millrace::ps
