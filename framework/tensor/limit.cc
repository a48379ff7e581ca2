#include "framework/tensor/limit.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>

#include <fmt/format.h>
#include <unistd.h>

namespace millrace {
namespace {

// Memory limit of the process's control group (container). Its file is missing or contains "max" if
// there is no limit.
int64_t group_memory() {
  int64_t bytes = 0;
  std::ifstream file("/sys/fs/cgroup/memory.max");
  return file >> bytes && bytes > 0 ? bytes : std::numeric_limits<int64_t>::max();
}

int64_t share_of_memory() {
  const int64_t pages = ::sysconf(_SC_PHYS_PAGES);
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const int64_t memory = pages > 0 && page > 0 ? pages * page : std::numeric_limits<int64_t>::max();
  return std::min(memory, group_memory()) / 4 * 3;
}

// The only process-wide state, because tensors have no object from which to get the limit.
std::atomic<int64_t>& limit_of_process() {
  static std::atomic<int64_t> limit{share_of_memory()};
  return limit;
}

}  // namespace

int64_t max_tensor_bytes() {
  return limit_of_process().load(std::memory_order_relaxed);
}

void set_max_tensor_bytes(int64_t bytes) {
  limit_of_process().store(bytes > 0 ? bytes : share_of_memory(), std::memory_order_relaxed);
}

Status check_tensor_bytes(int64_t bytes) {
  const int64_t most = max_tensor_bytes();
  if (bytes <= most) return Ok();
  return Status(StatusCode::kResource,
                fmt::format("a tensor of {} bytes is above the limit of {} bytes", bytes, most))
      .with_hint("--max-tensor-bytes sets the limit");
}

}  // namespace millrace
