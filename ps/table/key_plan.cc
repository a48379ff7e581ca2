#include "ps/table/key_plan.h"

#include <algorithm>
#include <bit>

#include "framework/base/errors.h"
#include "ps/table/keyed_random.h"
#include "ps/values.h"

namespace millrace::ps {
StatusOr<KeyPlan> make_key_plan(std::span<const int64_t> ids, int64_t shard_num, size_t servers,
                                std::optional<int64_t> padding) {
  if (ids.size() > UINT32_MAX / 2)
    return InvalidArgument("{} ids in one call, expected at most {}", ids.size(), UINT32_MAX / 2);
  MILLRACE_ASSIGN_OR_RETURN(const SparseRouting routing,
                            SparseRouting::create(shard_num, static_cast<int64_t>(servers)));
  KeyPlan plan;
  plan.shard_num = shard_num;
  plan.padding = padding;
  plan.ids.assign(ids.begin(), ids.end());
  plan.places.resize(ids.size());
  std::vector<std::vector<int64_t>> keys(servers);
  std::vector<std::vector<int64_t>> counts(servers);
  // Open addressing: entries are the position of the id's first occurrence + 1; at most half full.
  // Not DistinctIds, which copies the ids: in memory that is new for each call that costs half of
  // the time again.
  const size_t capacity = std::bit_ceil(std::max<size_t>(16, 2 * ids.size()));
  std::vector<uint32_t> firsts(capacity);
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t id = ids[i];
    if (padding == id) continue;
    size_t at = mix_bits(static_cast<uint64_t>(id)) & (capacity - 1);
    while (firsts[at] != 0 && ids[firsts[at] - 1] != id) at = (at + 1) & (capacity - 1);
    KeyPlan::Place& place = plan.places[i];
    if (firsts[at] != 0) {
      place = plan.places[firsts[at] - 1];
      ++counts[static_cast<size_t>(place.server)][place.position];
      plan.has_repeats = true;
      continue;
    }
    firsts[at] = static_cast<uint32_t>(i + 1);
    place.server = static_cast<int32_t>(routing.server_of(id));
    auto& own = keys[static_cast<size_t>(place.server)];
    place.position = static_cast<uint32_t>(own.size());
    own.push_back(id);
    counts[static_cast<size_t>(place.server)].push_back(1);
  }
  plan.by_server.resize(servers);
  for (size_t server = 0; server < servers; ++server) {
    KeyPlan::ServerKeys& listed = plan.by_server[server];
    listed.size = keys[server].size();
    const Dims dims{static_cast<int64_t>(listed.size)};
    MILLRACE_ASSIGN_OR_RETURN(listed.keys, copied_tensor(keys[server], DType::kInt64, dims));
    MILLRACE_ASSIGN_OR_RETURN(listed.counts, copied_tensor(counts[server], DType::kInt64, dims));
  }
  return plan;
}

}  // namespace millrace::ps
