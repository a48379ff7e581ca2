#include "transpiler/distribute/job.h"

namespace millrace::transpiler {

void DistributionJob::add_pair(ParamGrad pair) {
  const auto index = static_cast<uint32_t>(pairs.size());
  pair_of_param[pair.param] = index;
  pair_of_grad[pair.grad] = index;
  pairs.push_back(std::move(pair));
}

void DistributionJob::place(Dispatcher& dispatcher, const std::vector<Placeable>& slices,
                            const std::vector<OwnedSlice>& which) {
  const std::vector<int32_t> servers = dispatcher.dispatch(slices);
  owned.assign(endpoints.size(), {});
  for (size_t i = 0; i < which.size(); ++i) {
    pairs[which[i].pair].slices[which[i].slice].endpoint = servers[i];
    owned[static_cast<size_t>(servers[i])].push_back(which[i]);
  }
}

int32_t DistributionJob::distributed_mode() const {
  constexpr int32_t kSync = 0;
  constexpr int32_t kAsync = 1;
  constexpr int32_t kHalfAsync = 2;
  if (config.sync_mode || config.completely_not_async) return kSync;
  return config.runtime_split_send_recv ? kAsync : kHalfAsync;
}

}  // namespace millrace::transpiler
