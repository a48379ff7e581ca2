// Streams, events and kernels.

#include "tests/cuda_standin/api.h"
#include "tests/cuda_standin/grid.h"

namespace millrace::standin {
namespace {

Event* find_event(State& state, cudaEvent_t event) {
  auto* const found = reinterpret_cast<Event*>(event);
  return state.events.count(found) == 0 ? nullptr : found;
}

// An event that was recorded in a capture makes the waiting stream part of the capture.
cudaError_t wait_in_capture(const StreamCall& call, const Event& event) {
  Stream& stream = *call.stream();
  if (event.capture != nullptr && stream.capture == nullptr) stream.capture = event.capture;
  if (event.capture != stream.capture)
    return call.refuse_in_capture("waiting for an event from outside");
  auto& seen = stream.capture->seen[&stream];
  for (const auto& [other, node] : event.seen) seen[other] = std::max(seen[other], node);
  return cudaSuccess;
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t* config, std::function<void()> thread_body) {
  constexpr unsigned kMostThreads = 1024;
  const StreamCall call("cudaLaunchKernelEx", config == nullptr ? nullptr : config->stream);
  if (call.stream() == nullptr) return call.finish();
  if (config == nullptr) return call.refuse(cudaErrorInvalidValue, "no configuration");
  const dim3 grid = config->gridDim;
  const dim3 block = config->blockDim;
  if (call.stream()->device != current_device())
    return call.refuse(cudaErrorInvalidResourceHandle,
                       "the stream belongs to another device than the current one");
  if (grid.x == 0 || block.x == 0 || block.x > kMostThreads || grid.x > 0x7FFFFFFFU)
    return call.refuse(cudaErrorInvalidConfiguration, "impossible numbers of blocks or threads");
  if (grid.y != 1 || grid.z != 1 || block.y != 1 || block.z != 1 || config->numAttrs != 0 ||
      config->dynamicSmemBytes != 0)
    return call.refuse(cudaErrorInvalidConfiguration, "the stand-in has one dim and no attributes");
  return call.queue([grid, block, body = std::move(thread_body)] {
    const std::string problem = run_grid(grid, block, body);
    if (!problem.empty()) fail_work(cudaErrorLaunchFailure, "a kernel: " + problem);
    return Progress::kDone;
  });
}

}  // namespace millrace::standin

using namespace millrace::standin;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const StreamCall call("cudaStreamCreateWithFlags", nullptr);
  if (call.stream() == nullptr) return call.finish();
  if (stream == nullptr || flags > cudaStreamNonBlocking)
    return call.refuse(cudaErrorInvalidValue, "null or unknown flags");
  auto* const made = new Stream;
  made->device = current_device();
  made->is_blocking = flags == 0;
  call.state().streams.insert(made);
  *stream = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}

// Work that is queued is done first; nothing that waits for it can tell when.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  State& state = State::get();
  std::unique_lock held(state.lock);
  Stream* const stream = handle == nullptr ? nullptr : state.find(handle);
  if (stream == nullptr)
    return finish(cudaErrorInvalidResourceHandle, "cudaStreamDestroy", "unknown stream");
  if (stream->capture != nullptr) stream->capture->is_valid = false;
  state.run_until(held, [&] { return state.run(*stream, UINT64_MAX); });
  for (Event* const event : state.events) {
    if (event->stream == stream) event->stream = nullptr;
  }
  const cudaError_t error = state.device_of(*stream).error;
  state.streams.erase(stream);
  delete stream;
  return finish(error, "cudaStreamDestroy");
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  StreamCall call("cudaStreamSynchronize", stream);
  if (call.stream() == nullptr) return call.finish();
  if (call.stream()->capture != nullptr) return call.refuse_in_capture("waiting for the stream");
  State& state = call.state();
  Stream& waited = *call.stream();
  state.run_until(call.held(), [&] { return state.run(waited, UINT64_MAX); });
  return finish(call.device().error, "cudaStreamSynchronize");
}

// The first question after work was queued is always too early.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const StreamCall call("cudaStreamQuery", stream);
  if (call.stream() == nullptr) return call.finish();
  Stream& asked = *call.stream();
  if (asked.capture != nullptr) return call.refuse_in_capture("asking for the state of the stream");
  if (!asked.items.empty() && !asked.was_asked) {
    asked.was_asked = true;
    return finish(cudaErrorNotReady, "cudaStreamQuery");
  }
  const bool done = call.state().run(asked, UINT64_MAX);
  const cudaError_t error = call.device().error;
  return finish(error == cudaSuccess && !done ? cudaErrorNotReady : error, "cudaStreamQuery");
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned flags) {
  const StreamCall call("cudaStreamWaitEvent", stream);
  if (call.stream() == nullptr) return call.finish();
  State& state = call.state();
  const Event* const event = find_event(state, handle);
  if (event == nullptr || flags != 0)
    return call.refuse(cudaErrorInvalidResourceHandle, "unknown event, or flags");
  if (event->capture != nullptr || call.stream()->capture != nullptr)
    return wait_in_capture(call, *event);
  return call.queue([&state, recorded = Event(*event)] {
    // streams may be gone by now: their work is done then
    if (recorded.stream == nullptr || state.streams.count(recorded.stream) == 0)
      return Progress::kDone;
    return state.run(recorded) ? Progress::kDone : Progress::kLater;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const StreamCall call("cudaEventCreateWithFlags", nullptr);
  if (call.stream() == nullptr) return call.finish();
  if (event == nullptr || (flags & ~cudaEventDisableTiming) != 0)
    return call.refuse(cudaErrorInvalidValue, "null or unknown flags");
  auto* const made = new Event;
  made->timed = flags != cudaEventDisableTiming;
  made->device = current_device();
  call.state().events.insert(made);
  *event = reinterpret_cast<cudaEvent_t>(made);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  State& state = State::get();
  const std::lock_guard held(state.lock);
  Event* const event = find_event(state, handle);
  if (event == nullptr)
    return finish(cudaErrorInvalidResourceHandle, "cudaEventDestroy", "unknown event");
  state.events.erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  const StreamCall call("cudaEventRecord", stream);
  if (call.stream() == nullptr) return call.finish();
  Event* const event = find_event(call.state(), handle);
  if (event == nullptr || event->device != call.stream()->device)
    return call.refuse(cudaErrorInvalidResourceHandle, "unknown event, or of another device");
  Stream& recorded = *call.stream();
  event->stream = &recorded;
  event->number = recorded.items.empty() ? 0 : recorded.items.back().number;
  event->capture = recorded.capture;
  if (recorded.capture != nullptr) event->seen = recorded.capture->seen[&recorded];
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  State& state = State::get();
  std::unique_lock held(state.lock);
  const Event* const event = find_event(state, handle);
  if (event == nullptr)
    return finish(cudaErrorInvalidResourceHandle, "cudaEventSynchronize", "unknown event");
  if (event->capture != nullptr)
    return finish(cudaErrorStreamCaptureUnsupported, "cudaEventSynchronize", "a captured event");
  state.run_until(held, [&] { return state.run(*event); });
  return finish(state.devices[static_cast<size_t>(event->device)]->error, "cudaEventSynchronize");
}

// A microsecond for each item of work in between.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  constexpr const char* kCall = "cudaEventElapsedTime";
  State& state = State::get();
  const std::lock_guard held(state.lock);
  const Event* const first = find_event(state, start);
  const Event* const last = find_event(state, end);
  if (milliseconds == nullptr) return finish(cudaErrorInvalidValue, kCall, "null pointer");
  if (first == nullptr || last == nullptr || first->device != last->device || !first->timed ||
      !last->timed || first->stream == nullptr || last->stream == nullptr)
    return finish(cudaErrorInvalidResourceHandle, kCall,
                  "unknown event, not recorded, without timing, or of two devices");
  if (!state.is_done(*first) || !state.is_done(*last)) return finish(cudaErrorNotReady, kCall);
  const uint64_t items = last->number > first->number ? last->number - first->number : 0;
  *milliseconds = 1e-3F * static_cast<float>(items);
  return finish(cudaSuccess, kCall);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  State& state = State::get();
  const std::lock_guard held(state.lock);
  const Event* const event = find_event(state, handle);
  if (event == nullptr)
    return finish(cudaErrorInvalidResourceHandle, "cudaEventQuery", "unknown event");
  if (event->capture != nullptr)
    return finish(cudaErrorStreamCaptureUnsupported, "cudaEventQuery", "a captured event");
  if (!state.is_done(*event) && !event->stream->was_asked) {
    event->stream->was_asked = true;
    return finish(cudaErrorNotReady, "cudaEventQuery");
  }
  if (!state.run(*event)) return finish(cudaErrorNotReady, "cudaEventQuery");
  return finish(state.devices[static_cast<size_t>(event->device)]->error, "cudaEventQuery");
}

}  // extern "C"
