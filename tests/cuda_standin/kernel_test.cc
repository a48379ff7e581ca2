// Kernels on the stand-in: barriers, shuffles, faults, and errors that last.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda_standin/device_code.h"

namespace millrace::standin {
namespace {

using ::testing::HasSubstr;

// Each thread adds the number of its right neighbour in the block, which needs a barrier.
void add_neighbours(float* to) {
  __shared__ float shared[64];
  shared[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncthreads();
  to[blockIdx.x * blockDim.x + threadIdx.x] =
      shared[threadIdx.x] + shared[(threadIdx.x + 1) % blockDim.x];
}
void sum_warps(float* to) {
  double x = threadIdx.x;
  for (unsigned step = 16; step > 0; step /= 2) x += __shfl_down_sync(0xFFFFFFFFU, x, step);
  if (threadIdx.x % 32 == 0) to[threadIdx.x / 32] = static_cast<float>(x);
}
void skip_barrier(float* /*to*/) {
  if (threadIdx.x != 3) __syncthreads();
}
void shuffle_without_some(float* /*to*/) {
  if (threadIdx.x % 2 == 0) (void)__shfl_down_sync(0xFFFFFFFFU, 1.0, 1);
}
void write_after(float* to) {
  to[1024] = 1;  // on the next page
}
void write_just_after(float* to) {
  to[1] = 1;  // within the page
}

// Each case uses a device of its own if it breaks it: errors last until the process ends.
class Kernels : public ::testing::Test {
 protected:
  void use(int device) {
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMallocAsync(&data_, kCount * sizeof(float), stream_), cudaSuccess);
  }
  cudaError_t start(void (*kernel)(float*), unsigned blocks, unsigned threads) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = stream_;
    return cudaLaunchKernelEx(&config, kernel, static_cast<float*>(data_));
  }
  std::vector<float> values() {
    std::vector<float> result(kCount);
    EXPECT_EQ(cudaMemcpyAsync(result.data(), data_, kCount * sizeof(float), cudaMemcpyDeviceToHost,
                              stream_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return result;
  }
  // The error of a kernel, and what the stand-in says about it.
  void expect_failure(void (*kernel)(float*), cudaError_t error, const char* message) {
    EXPECT_EQ(start(kernel, 1, 32), cudaSuccess);  // it is queued
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(cudaStreamSynchronize(stream_), error);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(message));
    // every later call returns it
    EXPECT_EQ(start(add_neighbours, 1, 32), error);
    EXPECT_EQ(cudaGetLastError(), error);
    EXPECT_EQ(cudaGetLastError(), error);
    void* more = nullptr;
    EXPECT_EQ(cudaMallocAsync(&more, 1, stream_), error);
    EXPECT_EQ(cudaStreamDestroy(stream_), error);
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  }

  static constexpr size_t kCount = 128;
  cudaStream_t stream_ = nullptr;
  void* data_ = nullptr;
};

TEST_F(Kernels, ThreadsMeetAtBarriersInBothOrders) {
  use(0);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(start(add_neighbours, 2, 64), cudaSuccess);
    const std::vector<float> result = values();
    for (size_t i = 0; i < kCount; ++i) {
      const auto thread = static_cast<float>(i % 64);
      EXPECT_EQ(result[i], i % 64 == 63 ? 63 : 2 * thread + 1) << i;
    }
  }
  EXPECT_EQ(start(sum_warps, 1, 64), cudaSuccess);
  EXPECT_EQ(values()[0], 496);
  EXPECT_EQ(values()[1], 1520);
  EXPECT_EQ(cudaFreeAsync(data_, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
}

TEST_F(Kernels, ImpossibleSizesAreRefused) {
  use(0);
  EXPECT_EQ(start(add_neighbours, 0, 64), cudaErrorInvalidConfiguration);
  EXPECT_EQ(start(add_neighbours, 1, 1025), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(nullptr, [] {}), cudaErrorInvalidValue);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(start(add_neighbours, 1, 64), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(data_, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
}

// The remaining cases run in processes of their own: their devices cannot be used any more.
void in_another_process(const std::function<void()>& body) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [&] {
    body();
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

TEST_F(Kernels, AThreadThatSkipsABarrierIsAnError) {
  in_another_process([&] {
    use(1);
    expect_failure(skip_barrier, cudaErrorLaunchFailure,
                   "not all threads of a block reach a barrier");
  });
}

TEST_F(Kernels, AShuffleWithoutSomeLanesIsAnError) {
  in_another_process([&] {
    use(1);
    expect_failure(shuffle_without_some, cudaErrorLaunchFailure,
                   "a warp shuffles without all of its lanes");
  });
}

TEST_F(Kernels, AnAccessOutsideOfAllocationsIsAnError) {
  in_another_process([&] {
    use(1);
    expect_failure(write_after, cudaErrorIllegalAddress, "illegal address in cudaLaunchKernelEx");
  });
}

TEST_F(Kernels, AWriteJustAfterAnAllocationIsFoundWhenItIsFreed) {
  in_another_process([&] {
    use(1);
    EXPECT_EQ(cudaMallocAsync(&data_, sizeof(float), stream_), cudaSuccess);
    EXPECT_EQ(start(write_just_after, 1, 1), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(cudaFreeAsync(data_, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorIllegalAddress);
  });
}

TEST_F(Kernels, MemoryOfAnotherStreamNeedsAnEvent) {
  in_another_process([&] {
    use(1);
    cudaStream_t other = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(data_, 0, 4, other), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(other), cudaErrorIllegalAddress);
  });
}

}  // namespace
}  // namespace millrace::standin
