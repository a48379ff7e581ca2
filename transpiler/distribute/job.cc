#include "transpiler/distribute/job.h"

#include "framework/base/errors.h"

namespace millrace::transpiler {

int32_t DistributionJob::distributed_mode() const {
  constexpr int32_t kSync = 0;
  constexpr int32_t kAsync = 1;
  constexpr int32_t kHalfAsync = 2;
  if (config.sync_mode || config.completely_not_async) return kSync;
  return config.runtime_split_send_recv ? kAsync : kHalfAsync;
}

StatusOr<DistributionJob*> job_of(PassContext& context, llvm::StringRef pass) {
  auto* const job = dynamic_cast<DistributionJob*>(context.job);
  if (job == nullptr) {
    return InvalidArgument("pass '{}' works only inside 'distribute'",
                           std::string_view(pass.data(), pass.size()));
  }
  return job;
}

}  // namespace millrace::transpiler
