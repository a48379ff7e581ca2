// Graphs of the stand-in: what is captured, what a capture does not allow.

#include <array>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda_standin/runtime.h"

namespace millrace::standin {
namespace {

using ::testing::ElementsAre;
using Floats = std::array<float, 3>;

class Graphs : public ::testing::Test {
 protected:
  void SetUp() override {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMallocHost(&pinned_, sizeof(Floats)), cudaSuccess);
    EXPECT_EQ(cudaMallocAsync(&data_, sizeof(Floats), stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaFreeAsync(data_, stream_), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(pinned_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(live().graphs + live().allocations + live().streams + live().events, 0U);
  }
  void begin() {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  }
  cudaError_t end() { return cudaStreamEndCapture(stream_, &graph_); }
  // The forbidden call refuses, and the capture ends without a graph.
  void expect_end_of_capture(cudaError_t refused) {
    EXPECT_EQ(refused, cudaErrorStreamCaptureUnsupported);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    EXPECT_EQ(cudaStreamIsCapturing(stream_, &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph_, nullptr);
  }
  Floats& pinned() { return *static_cast<Floats*>(pinned_); }

  cudaStream_t stream_ = nullptr;
  void* pinned_ = nullptr;
  void* data_ = nullptr;
  cudaGraph_t graph_ = nullptr;
};

TEST_F(Graphs, RunWhatWasCapturedAtEachLaunch) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  EXPECT_EQ(cudaStreamIsCapturing(stream_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  begin();
  EXPECT_TRUE(is_capturing(stream_));
  void* temporary = nullptr;
  EXPECT_EQ(cudaMallocAsync(&temporary, sizeof(Floats), stream_), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(temporary, pinned_, sizeof(Floats), cudaMemcpyHostToDevice, stream_),
            cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(data_, temporary, sizeof(Floats), cudaMemcpyDeviceToDevice, stream_),
            cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(temporary, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamIsCapturing(stream_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_EQ(end(), cudaSuccess);

  cudaGraphExec_t exec = nullptr;
  EXPECT_EQ(cudaGraphInstantiate(&exec, graph_, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph_), cudaErrorInvalidValue);
  for (const Floats& given : {Floats{1, 2, 3}, Floats{4, 5, 6}}) {
    pinned() = given;
    EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
    Floats result{};
    EXPECT_EQ(cudaMemcpyAsync(result.data(), data_, sizeof result, cudaMemcpyDeviceToHost, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(result, given);
  }
  EXPECT_EQ(cudaGraphLaunch(exec, nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaErrorInvalidValue);
}

TEST_F(Graphs, CapturesAllowNoWaiting) {
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaEventCreateWithFlags(&event, 0), cudaSuccess);
  begin();
  expect_end_of_capture(cudaStreamSynchronize(stream_));
  begin();
  expect_end_of_capture(cudaStreamQuery(stream_));
  begin();
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorStreamCaptureUnsupported);
  expect_end_of_capture(cudaDeviceSynchronize());
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(Graphs, CapturesAllowNoPageableMemory) {
  Floats pageable{};
  begin();
  expect_end_of_capture(
      cudaMemcpyAsync(data_, pageable.data(), sizeof pageable, cudaMemcpyHostToDevice, stream_));
  begin();
  expect_end_of_capture(
      cudaMemcpyAsync(pageable.data(), data_, sizeof pageable, cudaMemcpyDeviceToHost, stream_));
  begin();
  void* more = nullptr;
  expect_end_of_capture(cudaMallocHost(&more, 4));
}

TEST_F(Graphs, MemoryOfAGraphDoesNotOutliveIt) {
  begin();
  expect_end_of_capture(cudaFreeAsync(data_, stream_));
  begin();
  void* left = nullptr;
  EXPECT_EQ(cudaMallocAsync(&left, 8, stream_), cudaSuccess);
  EXPECT_EQ(end(), cudaErrorInvalidValue);
}

TEST_F(Graphs, OtherStreamsJoinAndMustBeWaitedFor) {
  cudaStream_t other = nullptr;
  cudaEvent_t fork = nullptr;
  cudaEvent_t join = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(cudaEventCreateWithFlags(&fork, 0), cudaSuccess);
  EXPECT_EQ(cudaEventCreateWithFlags(&join, 0), cudaSuccess);
  for (const bool is_joined : {true, false}) {
    begin();
    EXPECT_EQ(cudaEventRecord(fork, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(other, fork, 0), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(data_, 0, sizeof(Floats), other), cudaSuccess);
    EXPECT_EQ(cudaStreamEndCapture(other, &graph_), cudaErrorStreamCaptureUnmatched);
    if (is_joined) {
      EXPECT_EQ(cudaEventRecord(join, other), cudaSuccess);
      EXPECT_EQ(cudaStreamWaitEvent(stream_, join, 0), cudaSuccess);
    }
    EXPECT_EQ(end(), is_joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
    if (graph_ != nullptr) {
      EXPECT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
    }
  }
  EXPECT_EQ(cudaEventDestroy(fork), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(join), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

TEST_F(Graphs, WrongCallsAreRefused) {
  EXPECT_EQ(end(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
            cudaErrorStreamCaptureUnsupported);
  begin();
  expect_end_of_capture(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  cudaGraphExec_t exec = nullptr;
  EXPECT_EQ(cudaGraphInstantiate(&exec, nullptr, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphExecDestroy(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamIsCapturing(stream_, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace millrace::standin
