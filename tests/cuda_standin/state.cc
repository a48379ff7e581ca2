#include "tests/cuda_standin/state.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/cuda_standin/fault.h"
#include "tests/cuda_standin/grid.h"

namespace millrace::standin {
namespace {

// Thrown by work that fails; the queue catches it.
struct WorkError {
  cudaError_t error;
};

bool is_device_memory(const void* data) {
  for (const auto& device : State::get().devices) {
    if (device->memory.owns(data)) return true;
  }
  return false;
}

}  // namespace

Graph::~Graph() {
  for (void* const data : allocations) {
    State::get().devices[static_cast<size_t>(device)]->memory.forget(data);
  }
}

State& State::get() {
  static State* const kState = new State;  // lives until the process ends
  return *kState;
}

// Tests choose the number of devices: the default is one, and 0 is a machine without a GPU.
State::State() {
  const char* const text = std::getenv("MILLRACE_STANDIN_GPUS");
  const int count = text == nullptr ? 1 : std::atoi(text);
  for (int i = 0; i < count; ++i) {
    devices.push_back(std::make_unique<DeviceState>());
    devices.back()->default_stream.device = i;
    devices.back()->default_stream.is_blocking = true;
  }
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

Stream* State::find(cudaStream_t stream) {
  if (stream == nullptr)
    return devices.empty() ? nullptr
                           : &devices[static_cast<size_t>(current_device())]->default_stream;
  auto* const found = reinterpret_cast<Stream*>(stream);
  return streams.count(found) == 0 ? nullptr : found;
}

void State::queue(Stream& stream, const std::string& what, Work work) {
  if (stream.capture != nullptr) {
    Capture& capture = *stream.capture;
    capture.graph->nodes.push_back({0, what, std::move(work)});
    capture.last[&stream] = capture.seen[&stream][&stream] = capture.graph->nodes.size();
    return;
  }
  stream.items.push_back({++last_number_, what, std::move(work)});
  stream.was_asked = false;
  // as with CUDA: each call waits for its work, so that the failing one can be seen
  static const bool kIsBlocking = std::getenv("CUDA_LAUNCH_BLOCKING") != nullptr;
  if (kIsBlocking) run(stream, last_number_);
}

void State::open(int device) {
  if (open_device_ == device) return;
  if (open_device_ >= 0) devices[static_cast<size_t>(open_device_)]->memory.close();
  open_device_ = device;
  if (device >= 0) devices[static_cast<size_t>(device)]->memory.open();
}

// The default stream waits for the blocking streams of its device, and they for it.
bool State::run_before(Stream& stream, uint64_t number) {
  if (!stream.is_blocking) return true;
  Stream& usual = device_of(stream).default_stream;
  if (&stream != &usual) return run(usual, number - 1);
  for (Stream* const other : streams) {
    if (other->is_blocking && other->device == stream.device && !run(*other, number - 1))
      return false;
  }
  return true;
}

// Memory stays open from the first item to the last, as opening takes time.
bool State::run(Stream& stream, uint64_t number) {
  ++depth_;
  const bool good = run_items(stream, number);
  if (--depth_ == 0) open(-1);
  return good;
}

bool State::run_items(Stream& stream, uint64_t number) {
  while (!stream.items.empty() && stream.items.front().number <= number) {
    if (!run_before(stream, stream.items.front().number)) return false;
    if (device_of(stream).error != cudaSuccess) {
      stream.items.clear();
      return true;
    }
    open(stream.device);
    Progress progress = Progress::kDone;
    Item& item = stream.items.front();
    DeviceState& device = device_of(stream);
    const bool good = run_guarded(
        [&] {
          try {
            progress = item.work();
          } catch (const WorkError& error) {
            device.error = error.error;
          }
        },
        &is_device_memory);
    if (!good) {
      abandon_grid();
      explain("illegal address in " + item.what);
      device.error = cudaErrorIllegalAddress;
    }
    if (progress == Progress::kLater) return false;
    stream.items.pop_front();
  }
  return true;
}

void State::run_until(std::unique_lock<std::recursive_mutex>& held,
                      const std::function<bool()>& done) {
  while (!done()) {
    held.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    held.lock();
  }
}

bool State::run_all(int device) {
  bool good = run(devices[static_cast<size_t>(device)]->default_stream, UINT64_MAX);
  for (Stream* const stream : streams) {
    if (stream->device == device && !run(*stream, UINT64_MAX)) good = false;
  }
  return good;
}

bool State::is_done(const Event& event) const {
  return event.stream == nullptr || event.stream->items.empty() ||
         event.stream->items.front().number > event.number;
}

bool State::run(const Event& event) {
  return event.stream == nullptr || run(*event.stream, event.number);
}

void fail_work(cudaError_t error, const std::string& why) {
  explain(why);
  throw WorkError{error};
}

void explain(const std::string& why) {
  std::fprintf(stderr, "stand-in: %s\n", why.c_str());
}

cudaError_t enqueue(cudaStream_t handle, const std::string& what, Work work) {
  State& state = State::get();
  const std::lock_guard held(state.lock);
  Stream* const stream = state.find(handle);
  if (stream == nullptr) {
    explain(what + ": unknown stream");
    return cudaErrorInvalidResourceHandle;
  }
  if (stream->device != current_device()) {
    explain(what + ": the stream belongs to another device than the current one");
    return cudaErrorInvalidResourceHandle;
  }
  if (state.device_of(*stream).error != cudaSuccess) return state.device_of(*stream).error;
  state.queue(*stream, what, std::move(work));
  return state.device_of(*stream).error;
}

int device_of(cudaStream_t handle) {
  State& state = State::get();
  const std::lock_guard held(state.lock);
  const Stream* const stream = state.find(handle);
  return stream == nullptr ? -1 : stream->device;
}

bool is_on_device(const void* data, size_t bytes, int device) {
  State& state = State::get();
  const std::lock_guard held(state.lock);
  return device >= 0 && state.devices[static_cast<size_t>(device)]->memory.holds(data, bytes);
}

bool is_capturing(cudaStream_t handle) {
  State& state = State::get();
  const std::lock_guard held(state.lock);
  const Stream* const stream = state.find(handle);
  return stream != nullptr && stream->capture != nullptr;
}

void count_handle(int change) {
  State& state = State::get();
  const std::lock_guard held(state.lock);
  state.handles += static_cast<size_t>(change);
}

Live live() {
  State& state = State::get();
  const std::lock_guard held(state.lock);
  Live result{0, state.streams.size(), state.events.size(), state.graphs.size(), state.handles};
  for (const auto& device : state.devices) result.allocations += device->memory.live();
  return result;
}

}  // namespace millrace::standin
