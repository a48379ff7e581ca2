#include "transpiler/distribute/job.h"

namespace millrace::transpiler {

int32_t DistributionJob::distributed_mode() const {
  constexpr int32_t kSync = 0;
  constexpr int32_t kAsync = 1;
  constexpr int32_t kHalfAsync = 2;
  if (config.sync_mode || config.completely_not_async) return kSync;
  return config.runtime_split_send_recv ? kAsync : kHalfAsync;
}

}  // namespace millrace::transpiler
