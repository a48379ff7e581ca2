// Memory of devices, pinned memory of the process, and copies.

#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/cuda_standin/api.h"

namespace millrace::standin {
namespace {

// A pool is known by its device; the handle of device 0 must not be null.
cudaMemPool_t pool_of(int device) {
  return reinterpret_cast<cudaMemPool_t>(static_cast<uintptr_t>(device) + 1);
}

bool is_pinned(const State& state, const void* data, size_t bytes) {
  auto found = state.pinned.upper_bound(static_cast<std::byte*>(const_cast<void*>(data)));
  if (found == state.pinned.begin()) return false;
  --found;
  const size_t offset = static_cast<size_t>(static_cast<const std::byte*>(data) - found->first);
  return offset < found->second && bytes <= found->second - offset;
}

bool is_any_device_memory(const State& state, const void* data) {
  for (const auto& device : state.devices) {
    if (device->memory.owns(data)) return true;
  }
  return false;
}

// Queued work that frees memory; the lock is held.
Work freeing(DeviceState& device, void* data, bool keep) {
  return [&device, data, keep] {
    if (!device.memory.end(data, keep))
      fail_work(cudaErrorIllegalAddress, "work has written outside of an allocation");
    return Progress::kDone;
  };
}

cudaError_t copy_in(const StreamCall& call, void* to, const void* from, size_t bytes) {
  if (!call.device().memory.holds(to, bytes))
    return call.refuse(cudaErrorInvalidValue, "the target is no allocated memory of the device");
  if (from == nullptr || is_any_device_memory(call.state(), from))
    return call.refuse(cudaErrorInvalidValue, "the source is not in the memory of the process");
  if (is_pinned(call.state(), from, bytes)) {
    return call.queue([=] {
      std::memcpy(to, from, bytes);
      return Progress::kDone;
    });
  }
  if (call.stream()->capture != nullptr)
    return call.refuse_in_capture("copying memory that is not pinned");
  const auto* const start = static_cast<const std::byte*>(from);
  return call.queue([to, staged = std::vector<std::byte>(start, start + bytes)] {
    std::memcpy(to, staged.data(), staged.size());
    return Progress::kDone;
  });
}

// Also a copy to memory that is not pinned is late: CUDA may wait for it, but need not.
cudaError_t copy_out(const StreamCall& call, void* to, const void* from, size_t bytes) {
  if (!call.device().memory.holds(from, bytes))
    return call.refuse(cudaErrorInvalidValue, "the source is no allocated memory of the device");
  if (to == nullptr || is_any_device_memory(call.state(), to))
    return call.refuse(cudaErrorInvalidValue, "the target is not in the memory of the process");
  if (call.stream()->capture != nullptr && !is_pinned(call.state(), to, bytes))
    return call.refuse_in_capture("copying to memory that is not pinned");
  return call.queue([=] {
    std::memcpy(to, from, bytes);
    return Progress::kDone;
  });
}

cudaError_t copy_within(const StreamCall& call, void* to, const void* from, size_t bytes) {
  const DeviceMemory& memory = call.device().memory;
  if (!memory.holds(to, bytes) || !memory.holds(from, bytes))
    return call.refuse(cudaErrorInvalidValue, "not within allocated memory of the device");
  const auto* const a = static_cast<const std::byte*>(to);
  const auto* const b = static_cast<const std::byte*>(from);
  if (a < b + bytes && b < a + bytes)
    return call.refuse(cudaErrorInvalidValue, "source and target overlap");
  return call.queue([=] {
    std::memcpy(to, from, bytes);
    return Progress::kDone;
  });
}

}  // namespace
}  // namespace millrace::standin

using namespace millrace::standin;

extern "C" {

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const StreamCall call("cudaMemGetInfo", nullptr);
  if (call.stream() == nullptr) return call.finish();
  if (free == nullptr || total == nullptr) return call.refuse(cudaErrorInvalidValue, "null");
  *free = call.device().memory.free_bytes();
  *total = DeviceMemory::kTotalBytes;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  if (pool == nullptr) return finish(cudaErrorInvalidValue, "cudaDeviceGetDefaultMemPool", "null");
  if (device < 0 || static_cast<size_t>(device) >= State::get().devices.size())
    return finish(cudaErrorInvalidDevice, "cudaDeviceGetDefaultMemPool", "no such device");
  *pool = pool_of(device);
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
                                    void* value) {
  const auto number = reinterpret_cast<uintptr_t>(pool);
  if (number == 0 || number > State::get().devices.size() || value == nullptr ||
      attribute != cudaMemPoolAttrReleaseThreshold)
    return finish(cudaErrorInvalidValue, "cudaMemPoolSetAttribute", "unknown pool or attribute");
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** data, size_t bytes, cudaStream_t stream) {
  const StreamCall call("cudaMallocAsync", stream);
  if (call.stream() == nullptr) return call.finish();
  if (data == nullptr || bytes == 0) return call.refuse(cudaErrorInvalidValue, "null or no bytes");
  DeviceState& device = call.device();
  void* const start = device.memory.reserve(bytes);
  if (start == nullptr) return call.refuse(cudaErrorMemoryAllocation, "");
  *data = start;
  if (call.stream()->capture != nullptr) call.stream()->capture->graph->allocations.insert(start);
  return call.queue([&device, start] {
    device.memory.begin(start);
    return Progress::kDone;
  });
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  const StreamCall call("cudaFreeAsync", stream);
  if (call.stream() == nullptr) return call.finish();
  if (data == nullptr) return call.refuse(cudaErrorInvalidValue, "null");
  const Capture* const capture = call.stream()->capture.get();
  const bool is_of_graph = capture != nullptr && capture->graph->allocations.count(data) != 0;
  if (capture != nullptr && !is_of_graph)
    return call.refuse_in_capture("freeing memory that was allocated before the capture");
  if (!call.device().memory.retire(data))
    return call.refuse(cudaErrorInvalidValue,
                       "no start of an allocation of the device, or freed before");
  return call.queue(freeing(call.device(), data, is_of_graph));
}

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  State& state = State::get();
  const std::lock_guard held(state.lock);
  if (data == nullptr || bytes == 0)
    return finish(cudaErrorInvalidValue, "cudaMallocHost", "null or no bytes");
  for (const Stream* const stream : state.streams) {
    if (stream->capture == nullptr || stream->capture->mode == cudaStreamCaptureModeRelaxed)
      continue;
    stream->capture->is_valid = false;
    return finish(cudaErrorStreamCaptureUnsupported, "cudaMallocHost",
                  "allocating pinned memory while a graph is captured");
  }
  *data = std::malloc(bytes);
  if (*data == nullptr) return finish(cudaErrorMemoryAllocation, "cudaMallocHost");
  state.pinned[static_cast<std::byte*>(*data)] = bytes;
  return cudaSuccess;
}

// Waits for all devices, whose work may use the memory.
cudaError_t cudaFreeHost(void* data) {
  State& state = State::get();
  std::unique_lock held(state.lock);
  if (data == nullptr) return cudaSuccess;
  const auto found = state.pinned.find(static_cast<std::byte*>(data));
  if (found == state.pinned.end())
    return finish(cudaErrorInvalidValue, "cudaFreeHost", "not pinned memory, or freed before");
  for (size_t i = 0; i < state.devices.size(); ++i)
    state.run_until(held, [&] { return state.run_all(static_cast<int>(i)); });
  std::free(data);
  state.pinned.erase(found);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const StreamCall call("cudaMemcpyAsync", stream);
  if (call.stream() == nullptr) return call.finish();
  if (bytes == 0) return cudaSuccess;
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return copy_in(call, to, from, bytes);
    case cudaMemcpyDeviceToHost:
      return copy_out(call, to, from, bytes);
    case cudaMemcpyDeviceToDevice:
      return copy_within(call, to, from, bytes);
    default:
      return call.refuse(cudaErrorInvalidValue, "a kind of copy that the stand-in lacks");
  }
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  const StreamCall call("cudaMemsetAsync", stream);
  if (call.stream() == nullptr) return call.finish();
  if (!call.device().memory.holds(to, bytes))
    return call.refuse(cudaErrorInvalidValue, "not within allocated memory of the device");
  return call.queue([=] {
    std::memset(to, value, bytes);
    return Progress::kDone;
  });
}

}  // extern "C"
