#include "transpiler/distribute/check_ranges.h"

#include <cstdint>
#include <limits>

#include "framework/base/errors.h"

namespace millrace::transpiler {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostCommunicators = 1024;
constexpr int64_t kMostThreads = 65536;

struct Range {
  const char* field;
  int64_t value;
  int64_t least;
  int64_t most;
};

}  // namespace

Status check_ranges(const DistributeTranspilerConfig& config, const TranspileArguments& arguments) {
  const Range kRanges[] = {
      {"trainer_id", arguments.trainer_id, kLeast, kMost},
      {"device_count", arguments.device_count, kLeast, kMost},
      {"nccl_comm_num", config.nccl_comm_num, kLeast, kMostCommunicators},
      {"hierarchical_allreduce_inter_nranks", config.hierarchical_allreduce_inter_nranks, kLeast,
       kMost},
      {"rpc_get_thread_num", config.rpc_get_thread_num, 1, kMostThreads},
      {"rpc_send_thread_num", config.rpc_send_thread_num, 1, kMostThreads},
      {"rpc_prefetch_thread_num", config.rpc_prefetch_thread_num, 1, kMostThreads},
  };
  for (const Range& range : kRanges) {
    if (range.value > range.most) {
      return InvalidArgument("{} must be at most {} (found {})", range.field, range.most,
                             range.value);
    }
    if (range.value < range.least) {
      return InvalidArgument("{} must be at least {} (found {})", range.field, range.least,
                             range.value);
    }
  }
  return Ok();
}

}  // namespace millrace::transpiler
