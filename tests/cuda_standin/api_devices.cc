// Devices and errors.

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/cuda_standin/api.h"

namespace millrace::standin {
namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr std::array kErrors = {
    ErrorText{cudaSuccess, "cudaSuccess", "no error"},
    ErrorText{cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    ErrorText{cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    ErrorText{cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
              "invalid configuration argument"},
    ErrorText{cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    ErrorText{cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    ErrorText{cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle",
              "invalid resource handle"},
    ErrorText{cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    ErrorText{cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
              "an illegal memory access was encountered"},
    ErrorText{cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    ErrorText{cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
              "operation not permitted when stream is capturing"},
    ErrorText{cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
              "operation failed due to a previous error during capture"},
    ErrorText{cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
              "capture was not initiated in this stream"},
    ErrorText{cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
              "capturing stream has unjoined work"},
};

const ErrorText& text_of(cudaError_t error) {
  static constexpr ErrorText kUnknown{cudaSuccess, "unrecognized error code",
                                      "unrecognized error code"};
  const auto* const found = std::find_if(kErrors.begin(), kErrors.end(),
                                         [&](const ErrorText& e) { return e.error == error; });
  return found == kErrors.end() ? kUnknown : *found;
}

// The error that has ended the work of the current device.
cudaError_t device_error(State& state) {
  return state.devices.empty() ? cudaSuccess
                               : state.devices[static_cast<size_t>(current_device())]->error;
}

}  // namespace

cudaError_t& last_error() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

cudaError_t finish(cudaError_t error, const char* function, const std::string& why) {
  if (error == cudaSuccess) return error;
  last_error() = error;
  if (!why.empty()) explain(std::string(function) + ": " + why);
  return error;
}

StreamCall::StreamCall(const char* function, cudaStream_t stream)
    : function_(function), state_(State::get()), held_(state_.lock), stream_(state_.find(stream)) {
  if (stream_ == nullptr) {
    refused_ = state_.devices.empty() ? cudaErrorNoDevice : cudaErrorInvalidResourceHandle;
    why_ = "unknown stream";
  } else if (device().error != cudaSuccess) {
    refused_ = device().error;
    stream_ = nullptr;
  }
}

cudaError_t StreamCall::refuse_in_capture(const std::string& why) const {
  if (stream_->capture != nullptr) stream_->capture->is_valid = false;
  return finish(cudaErrorStreamCaptureUnsupported, function_, why + " while a graph is captured");
}

cudaError_t StreamCall::queue(Work work) const {
  state_.queue(*stream_, function_, std::move(work));
  return finish(device().error, function_, "");
}

}  // namespace millrace::standin

using namespace millrace::standin;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return finish(cudaErrorInvalidValue, "cudaGetDeviceCount", "null");
  *count = static_cast<int>(State::get().devices.size());
  return finish(*count == 0 ? cudaErrorNoDevice : cudaSuccess, "cudaGetDeviceCount");
}

cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return finish(cudaErrorInvalidValue, "cudaGetDevice", "null");
  *device = current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  State& state = State::get();
  const std::lock_guard held(state.lock);
  if (device < 0 || static_cast<size_t>(device) >= state.devices.size())
    return finish(cudaErrorInvalidDevice, "cudaSetDevice", "no such device");
  current_device() = device;
  return finish(device_error(state), "cudaSetDevice");
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* properties, int device) {
  const State& state = State::get();
  if (properties == nullptr)
    return finish(cudaErrorInvalidValue, "cudaGetDeviceProperties", "null");
  if (device < 0 || static_cast<size_t>(device) >= state.devices.size())
    return finish(cudaErrorInvalidDevice, "cudaGetDeviceProperties", "no such device");
  *properties = {};
  std::strncpy(properties->name, "stand-in for a GPU (tests only)", sizeof properties->name - 1);
  properties->totalGlobalMem = DeviceMemory::kTotalBytes;
  properties->major = 9;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) return finish(cudaErrorInvalidValue, "cudaDriverGetVersion", "null");
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
  StreamCall call("cudaDeviceSynchronize", nullptr);
  if (call.stream() == nullptr) return call.finish();
  for (const Stream* const stream : call.state().streams) {
    if (stream->device != current_device() || stream->capture == nullptr) continue;
    stream->capture->is_valid = false;
    return call.refuse_in_capture("waiting for the device");
  }
  const int device = current_device();
  call.state().run_until(call.held(), [&] { return call.state().run_all(device); });
  return finish(call.device().error, "cudaDeviceSynchronize");
}

const char* cudaGetErrorName(cudaError_t error) {
  return text_of(error).name;
}

const char* cudaGetErrorString(cudaError_t error) {
  return text_of(error).text;
}

cudaError_t cudaGetLastError(void) {
  const cudaError_t error = cudaPeekAtLastError();
  last_error() = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void) {
  State& state = State::get();
  const std::lock_guard held(state.lock);
  const cudaError_t lasting = device_error(state);
  return lasting == cudaSuccess ? last_error() : lasting;
}

}  // extern "C"
