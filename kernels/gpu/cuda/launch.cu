#include "kernels/gpu/cuda/launch.h"
#include "kernels/gpu/functors/all.h"

namespace millrace::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
// Rows that are too few to fill a GPU get as many threads as a block can have.
constexpr int kMostThreads = 1024;
constexpr int64_t kFewRows = 1024;
// Enough blocks to fill every current GPU; with more work, threads loop.
constexpr int64_t kMostBlocks = 16384;

// The threads of a CUDA block.
class BlockTeam {
 public:
  __device__ explicit BlockTeam(double* shared) : shared_(shared) {}
  __device__ int64_t rank() const { return threadIdx.x; }
  __device__ int64_t size() const { return blockDim.x; }

  __device__ double sum(double x) const {
    return all(
        x, [](double a, double b) { return a + b; }, 0.0);
  }
  __device__ float max(float x) const {
    const auto more = [](double a, double b) { return a > b ? a : b; };
    return static_cast<float>(all(static_cast<double>(x), more, -INFINITY));
  }

 private:
  // Every thread gets the result. Barriers before and after allow consecutive calls.
  template <typename Combine>
  __device__ double all(double x, Combine combine, double neutral) const {
    const unsigned lane = threadIdx.x % kWarp;
    const unsigned warp = threadIdx.x / kWarp;
    for (int step = kWarp / 2; step > 0; step /= 2)
      x = combine(x, __shfl_down_sync(0xFFFFFFFFU, x, step));
    __syncthreads();
    if (lane == 0) shared_[warp] = x;
    __syncthreads();
    if (warp == 0) {
      x = lane < blockDim.x / kWarp ? shared_[lane] : neutral;
      for (int step = kWarp / 2; step > 0; step /= 2)
        x = combine(x, __shfl_down_sync(0xFFFFFFFFU, x, step));
      if (lane == 0) shared_[0] = x;
    }
    __syncthreads();
    return shared_[0];
  }

  double* shared_;
};

template <typename Functor>
__global__ void run_each(Functor functor, int64_t count) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    functor(i);
}

template <typename Functor>
__global__ void __launch_bounds__(kMostThreads) run_rows(Functor functor, int64_t rows) {
  __shared__ double shared[kMostThreads / kWarp];
  const BlockTeam team(shared);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) functor(team, row);
}

cudaLaunchConfig_t blocks_for(int64_t count, int64_t per_block, cudaStream_t stream) {
  const int64_t wanted = (count + per_block - 1) / per_block;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(wanted < kMostBlocks ? wanted : kMostBlocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return config;
}

using Launcher = cudaError_t (*)(const void*, int64_t, cudaStream_t);

// Returns the error of this launch; cudaGetLastError() would also return an older one.
template <typename Functor>
cudaError_t each(const void* data, int64_t count, cudaStream_t stream) {
  const cudaLaunchConfig_t config = blocks_for(count, kThreads, stream);
  return cudaLaunchKernelEx(&config, &run_each<Functor>, *static_cast<const Functor*>(data), count);
}
template <typename Functor>
cudaError_t rows(const void* data, int64_t count, cudaStream_t stream) {
  cudaLaunchConfig_t config = blocks_for(count, 1, stream);
  if (count < kFewRows) config.blockDim = dim3(kMostThreads);
  return cudaLaunchKernelEx(&config, &run_rows<Functor>, *static_cast<const Functor*>(data), count);
}

template <typename... Functors>
cudaError_t call_each(FunctorList<Functors...>, size_t functor, const void* data, int64_t count,
                      cudaStream_t stream) {
  static constexpr Launcher kLaunchers[] = {&each<Functors>...};
  return kLaunchers[functor](data, count, stream);
}
template <typename... Functors>
cudaError_t call_rows(FunctorList<Functors...>, size_t functor, const void* data, int64_t count,
                      cudaStream_t stream) {
  static constexpr Launcher kLaunchers[] = {&rows<Functors>...};
  return kLaunchers[functor](data, count, stream);
}

}  // namespace

cudaError_t cuda_launch_each(size_t functor, const void* data, int64_t count, cudaStream_t stream) {
  return call_each(EachFunctors{}, functor, data, count, stream);
}

cudaError_t cuda_launch_rows(size_t functor, const void* data, int64_t rows, cudaStream_t stream) {
  return call_rows(RowFunctors{}, functor, data, rows, stream);
}

}  // namespace millrace::gpu
