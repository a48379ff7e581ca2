#include "ps/table/routing.h"

#include <algorithm>

#include "framework/base/errors.h"

namespace millrace::ps {

StatusOr<SparseRouting> SparseRouting::create(int64_t shard_num, int64_t servers) {
  if (shard_num < 1) return InvalidArgument("shard_num is {}, expected at least 1", shard_num);
  if (servers < 1) return InvalidArgument("a table has {} servers, expected at least 1", servers);
  return SparseRouting(shard_num, (shard_num + servers - 1) / servers);
}

StatusOr<std::vector<DenseRange>> dense_ranges(int64_t elements, int64_t servers) {
  if (elements < 0)
    return InvalidArgument("a dense table has {} elements, expected at least 0", elements);
  if (servers < 1) return InvalidArgument("a table has {} servers, expected at least 1", servers);
  const int64_t part = elements / servers + 1;
  std::vector<DenseRange> ranges;
  for (int64_t begin = 0; static_cast<int64_t>(ranges.size()) < servers; begin += part) {
    const int64_t from = std::min(begin, elements);
    ranges.push_back({from, std::min(part, elements - from)});
  }
  return ranges;
}

}  // namespace millrace::ps
