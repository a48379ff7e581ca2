#pragma once

#include <string>

#include "tests/cuda_standin/state.h"

namespace millrace::standin {

/// The error that cudaGetLastError() of the thread returns and clears.
cudaError_t& last_error();

/// Ends a call of CUDA: records its error, and prints why there is one.
cudaError_t finish(cudaError_t error, const char* function, const std::string& why = "");

/// A call about a stream: holds the lock, and finds the stream or the reason to refuse the call.
class StreamCall {
 public:
  StreamCall(const char* function, cudaStream_t stream);

  /// Null if the call is refused; finish() then returns the reason.
  [[nodiscard]] Stream* stream() const { return stream_; }
  [[nodiscard]] DeviceState& device() const { return state_.device_of(*stream_); }
  [[nodiscard]] State& state() const { return state_; }
  std::unique_lock<std::recursive_mutex>& held() { return held_; }
  cudaError_t refuse(cudaError_t error, const std::string& why) const {
    return finish(error, function_, why);
  }
  /// A call that captures do not allow; ends a capture of the stream.
  cudaError_t refuse_in_capture(const std::string& why) const;
  /// The error of earlier work, or success.
  [[nodiscard]] cudaError_t finish() const { return finish(refused_, function_, why_); }
  /// Queues work of a call that has been checked.
  cudaError_t queue(Work work) const;

 private:
  static cudaError_t finish(cudaError_t error, const char* function, const std::string& why) {
    return standin::finish(error, function, why);
  }
  const char* function_;
  State& state_;
  std::unique_lock<std::recursive_mutex> held_;
  Stream* stream_ = nullptr;
  cudaError_t refused_ = cudaSuccess;
  std::string why_;
};

}  // namespace millrace::standin
