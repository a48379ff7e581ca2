// The stand-in's runtime is strict: work is late, memory is protected, and wrong calls are refused.
// tests/cuda_standin/README.md.

#include "tests/cuda_standin/runtime.h"

#include <array>
#include <cstring>
#include <vector>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::standin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::array<float, 3>;

// What a call prints on stderr.
template <typename Call>
std::string said(const Call& call) {
  ::testing::internal::CaptureStderr();
  call();
  return ::testing::internal::GetCapturedStderr();
}

class Runtime : public ::testing::Test {
 protected:
  void SetUp() override {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    (void)cudaGetLastError();
    const Live left = live();
    EXPECT_EQ(left.allocations + left.streams + left.events + left.graphs + left.handles, 0U);
  }

  void* allocate(size_t bytes) {
    void* data = nullptr;
    EXPECT_EQ(cudaMallocAsync(&data, bytes, stream_), cudaSuccess);
    return data;
  }
  cudaError_t copy_in(void* to, const Floats& from) {
    return cudaMemcpyAsync(to, from.data(), sizeof from, cudaMemcpyHostToDevice, stream_);
  }
  cudaError_t copy_out(Floats& to, const void* from) {
    return cudaMemcpyAsync(to.data(), from, sizeof to, cudaMemcpyDeviceToHost, stream_);
  }

  cudaStream_t stream_ = nullptr;
};

TEST_F(Runtime, AMissingSynchronisationShowsAsOldData) {
  void* const data = allocate(sizeof(Floats));
  EXPECT_EQ(copy_in(data, {1, 2, 3}), cudaSuccess);
  Floats result = {7, 7, 7};
  EXPECT_EQ(copy_out(result, data), cudaSuccess);
  EXPECT_THAT(result, ElementsAre(7, 7, 7));  // not synchronized
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_THAT(result, ElementsAre(1, 2, 3));
  EXPECT_EQ(cudaFreeAsync(data, stream_), cudaSuccess);
}

TEST_F(Runtime, OnlyPinnedSourcesAreReadLate) {
  void* const data = allocate(sizeof(Floats));
  Floats pageable = {1, 2, 3};
  Floats result{};
  EXPECT_EQ(copy_in(data, pageable), cudaSuccess);
  pageable = {4, 5, 6};
  EXPECT_EQ(copy_out(result, data), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_THAT(result, ElementsAre(1, 2, 3));

  void* pinned = nullptr;
  EXPECT_EQ(cudaMallocHost(&pinned, sizeof(Floats)), cudaSuccess);
  auto& values = *static_cast<Floats*>(pinned);
  values = {1, 2, 3};
  EXPECT_EQ(copy_in(data, values), cudaSuccess);
  values = {4, 5, 6};
  EXPECT_EQ(copy_out(result, data), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_THAT(result, ElementsAre(4, 5, 6));
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeAsync(data, stream_), cudaSuccess);
}

TEST_F(Runtime, TheProcessorCannotTouchDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto touch = [] {
    cudaStream_t stream = nullptr;
    void* data = nullptr;
    (void)cudaStreamCreateWithFlags(&stream, 0);
    (void)cudaMallocAsync(&data, 4, stream);
    (void)cudaStreamSynchronize(stream);
    static_cast<volatile char*>(data)[0] = 1;
  };
  EXPECT_DEATH(touch(), "the processor touched device memory");
}

TEST_F(Runtime, NewMemoryIsNotANumber) {
  void* const data = allocate(sizeof(Floats));
  Floats result{};
  EXPECT_EQ(copy_out(result, data), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_TRUE(result[0] != result[0]);
  EXPECT_EQ(cudaMemsetAsync(data, 0, sizeof result, stream_), cudaSuccess);
  EXPECT_EQ(copy_out(result, data), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_THAT(result, ElementsAre(0, 0, 0));
  EXPECT_EQ(cudaFreeAsync(data, stream_), cudaSuccess);
}

TEST_F(Runtime, RefusesFreedAndForeignMemory) {
  auto* const data = static_cast<std::byte*>(allocate(64));
  Floats values{};
  EXPECT_EQ(copy_in(data + 60, values), cudaErrorInvalidValue);  // beyond its end
  EXPECT_EQ(copy_in(values.data(), values), cudaErrorInvalidValue);
  EXPECT_EQ(copy_out(values, values.data()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(data, data, 12, cudaMemcpyHostToDevice, stream_),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(data, data, 12, cudaMemcpyDeviceToHost, stream_),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(data, data + 8, 12, cudaMemcpyDeviceToDevice, stream_),
            cudaErrorInvalidValue);  // overlap
  EXPECT_EQ(cudaMemcpyAsync(data, values.data(), 12, cudaMemcpyDeviceToDevice, stream_),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(data, values.data(), 12, cudaMemcpyHostToHost, stream_),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(nullptr, nullptr, 0, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(data, 0, 65, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeAsync(data + 8, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeAsync(nullptr, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeAsync(data, stream_), cudaSuccess);
  EXPECT_THAT(said([&] { EXPECT_EQ(cudaFreeAsync(data, stream_), cudaErrorInvalidValue); }),
              HasSubstr("cudaFreeAsync: no start of an allocation of the device, or freed before"));
  EXPECT_EQ(copy_in(data, values), cudaErrorInvalidValue);
}

TEST_F(Runtime, MemoryHasAnEnd) {
  size_t free_bytes = 0;
  size_t all = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &all), cudaSuccess);
  EXPECT_EQ(free_bytes, all);
  void* data = nullptr;
  EXPECT_EQ(cudaMallocAsync(&data, all + 1, stream_), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaMallocAsync(&data, 0, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMallocAsync(nullptr, 1, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemGetInfo(nullptr, nullptr), cudaErrorInvalidValue);
  void* const some = allocate(1000);
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &all), cudaSuccess);
  EXPECT_EQ(free_bytes, all - 1000);
  EXPECT_EQ(cudaFreeAsync(some, stream_), cudaSuccess);
}

TEST_F(Runtime, AskingForTheStateIsTooEarlyOnce) {
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
  void* const data = allocate(4);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorNotReady);  // as CUDA does
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaFreeAsync(data, stream_), cudaSuccess);
}

TEST_F(Runtime, EventsOrderStreams) {
  cudaStream_t other = nullptr;
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);  // not recorded
  void* const data = allocate(sizeof(Floats));
  Floats result{};
  // without the event, the memory does not exist yet for the other stream
  EXPECT_EQ(copy_in(data, {1, 2, 3}), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(result.data(), data, sizeof result, cudaMemcpyDeviceToHost, other),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_THAT(result, ElementsAre(1, 2, 3));
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(other), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaFreeAsync(data, stream_), cudaSuccess);
}

TEST_F(Runtime, TheDefaultStreamWaitsForBlockingStreams) {
  cudaStream_t blocking = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&blocking, 0), cudaSuccess);
  void* data = nullptr;
  Floats result{};
  const Floats given = {1, 2, 3};
  EXPECT_EQ(cudaMallocAsync(&data, sizeof given, blocking), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(data, given.data(), sizeof given, cudaMemcpyHostToDevice, nullptr),
            cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(result.data(), data, sizeof result, cudaMemcpyDeviceToHost, blocking),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(blocking), cudaSuccess);
  EXPECT_THAT(result, ElementsAre(1, 2, 3));
  EXPECT_EQ(cudaFreeAsync(data, blocking), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST_F(Runtime, DevicesAreSeparate) {
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 4);
  EXPECT_EQ(cudaSetDevice(4), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaStream_t other = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  void* const data = allocate(sizeof(Floats));  // of the stream's device
  const Floats given = {1, 2, 3};
  EXPECT_EQ(cudaMemcpyAsync(data, given.data(), sizeof given, cudaMemcpyHostToDevice, other),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeAsync(data, other), cudaErrorInvalidValue);
  EXPECT_THAT(said([&] {
                EXPECT_EQ(enqueue(stream_, "work", [] { return Progress::kDone; }),
                          cudaErrorInvalidResourceHandle);
              }),
              HasSubstr("belongs to another device"));
  EXPECT_EQ(cudaFreeAsync(data, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(Runtime, DevicesAreDescribed) {
  cudaDeviceProp properties{};
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_THAT(properties.name, HasSubstr("stand-in"));
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 9), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetDeviceProperties(nullptr, 0), cudaErrorInvalidValue);
  int number = -1;
  EXPECT_EQ(cudaGetDevice(&number), cudaSuccess);
  EXPECT_EQ(number, 0);
  EXPECT_EQ(cudaDriverGetVersion(&number), cudaSuccess);
  EXPECT_EQ(number, 13000);
  cudaMemPool_t pool = nullptr;
  size_t most = 0;
  EXPECT_EQ(cudaDeviceGetDefaultMemPool(&pool, 0), cudaSuccess);
  EXPECT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &most), cudaSuccess);
  EXPECT_EQ(cudaMemPoolSetAttribute(nullptr, cudaMemPoolAttrReleaseThreshold, &most),
            cudaErrorInvalidValue);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady");
  EXPECT_STREQ(cudaGetErrorString(static_cast<cudaError_t>(12345)), "unrecognized error code");
}

}  // namespace
}  // namespace millrace::standin
