#include "kernels/device.h"

#include <algorithm>
#include <array>
#include <map>

#include "framework/tensor/buffer.h"
#include "framework/tensor/limit.h"
#include "kernels/random_state.h"
#include "kernels/workers.h"

namespace millrace::kernels {
namespace {

// splitmix64: neighbouring states produce unrelated numbers.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

// Stored like the state of a library, so that random_state.h can reach it.
struct RandomState {
  uint64_t position = 0;
};

}  // namespace

struct CpuDevice::Parts {
  std::unique_ptr<Workers> workers;
  std::array<std::shared_ptr<Buffer>, 4> scratch;
  std::map<const void*, std::shared_ptr<void>> libraries;
};

CpuDevice::CpuDevice(int threads, uint64_t seed)
    : threads_(std::max(threads, 1)), parts_(std::make_unique<Parts>()) {
  library<RandomState>().position = seed;
  if (threads_ > 1) Workers::end_threads_before_forks();
}

CpuDevice::~CpuDevice() = default;

void CpuDevice::parallel_for(int64_t count, int64_t grain,
                             llvm::function_ref<void(int64_t, int64_t)> body) {
  if (count <= 0) return;
  const int64_t wanted = std::min<int64_t>(threads_, (count + grain - 1) / grain);
  if (wanted <= 1) {
    body(0, count);
    return;
  }
  if (parts_->workers == nullptr) parts_->workers = std::make_unique<Workers>(threads_);
  parts_->workers->run(static_cast<int>(wanted), [&](int range) {
    body(count * range / wanted, count * (range + 1) / wanted);
  });
}

uint64_t CpuDevice::next_seed() {
  return mix(library<RandomState>().position++);
}

uint64_t random_position(CpuDevice& device) {
  return device.library<RandomState>().position;
}

void set_random_position(CpuDevice& device, uint64_t position) {
  device.library<RandomState>().position = position;
}

StatusOr<std::byte*> CpuDevice::scratch(size_t bytes, int slot) {
  std::shared_ptr<Buffer>& buffer = parts_->scratch[static_cast<size_t>(slot)];
  if (buffer == nullptr || buffer->size() < bytes) {
    buffer.reset();
    MILLRACE_RETURN_IF_ERROR(check_tensor_bytes(static_cast<int64_t>(bytes)));
    MILLRACE_ASSIGN_OR_RETURN(buffer, Buffer::allocate(bytes));
  }
  return buffer->data();
}

std::shared_ptr<void>& CpuDevice::library_state(const void* key) {
  return parts_->libraries[key];
}

}  // namespace millrace::kernels
