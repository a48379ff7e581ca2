#include "kernels/gpu/cuda/launch.h"
#include "kernels/gpu/functors/all.h"

namespace millrace::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
// Rows that are too few to fill a GPU get more threads each; with 1,024 some kernels would spill
// registers.
constexpr int kMostThreads = 512;
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
  __device__ double product(double x) const {
    return all(
        x, [](double a, double b) { return a * b; }, 1.0);
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

constexpr int kLanes = 8;   // adjacent results that one block computes: 32 bytes of floats
constexpr int kMates = 64;  // threads of one result

// The threads of a CUDA block that compute one of kLanes adjacent results. Those of a result that
// does not exist take part in barriers, and do nothing else.
class LaneTeam {
 public:
  __device__ LaneTeam(double* shared, bool exists) : shared_(shared), exists_(exists) {}
  __device__ int64_t rank() const { return exists_ ? threadIdx.x / kLanes : int64_t{1} << 62; }
  __device__ int64_t size() const { return kMates; }

  __device__ double sum(double x) const {
    return all(x, [](double a, double b) { return a + b; });
  }
  __device__ double product(double x) const {
    return all(x, [](double a, double b) { return a * b; });
  }
  __device__ float max(float x) const {
    const auto more = [](double a, double b) { return a > b ? a : b; };
    return static_cast<float>(all(static_cast<double>(x), more));
  }

 private:
  template <typename Combine>
  __device__ double all(double x, Combine combine) const {
    for (int step = kWarp / 2; step >= kLanes; step /= 2)
      x = combine(x, __shfl_xor_sync(0xFFFFFFFFU, x, step));
    const unsigned warp = threadIdx.x / kWarp;
    const unsigned lane = threadIdx.x % kLanes;
    __syncthreads();
    if (threadIdx.x % kWarp < kLanes) shared_[warp * kLanes + lane] = x;
    __syncthreads();
    x = shared_[lane];
    for (int other = 1; other < kLanes * kMates / kWarp; ++other)
      x = combine(x, shared_[other * kLanes + lane]);
    return x;
  }

  double* shared_;
  bool exists_;
};

template <typename Functor>
__global__ void run_each(Functor functor, int64_t count) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    functor(i);
}

template <typename Functor>
__global__ void run_rows(Functor functor, int64_t rows) {
  __shared__ double shared[kMostThreads / kWarp];
  const BlockTeam team(shared);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) functor(team, row);
}

template <typename Functor>
__global__ void run_lanes(Functor functor, int64_t rows) {
  __shared__ double shared[kLanes * kMates / kWarp * kLanes];
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kLanes; first < rows;
       first += static_cast<int64_t>(gridDim.x) * kLanes) {
    const int64_t row = first + threadIdx.x % kLanes;
    const bool exists = row < rows;
    // a row that exists may be read for one that does not
    functor(LaneTeam(shared, exists), exists ? row : first);
  }
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

template <typename Functor>
cudaError_t lanes(const void* data, int64_t count, cudaStream_t stream) {
  cudaLaunchConfig_t config = blocks_for(count, kLanes, stream);
  config.blockDim = dim3(kLanes * kMates);
  return cudaLaunchKernelEx(&config, &run_lanes<Functor>, *static_cast<const Functor*>(data),
                            count);
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
  static constexpr Launcher kLaunchers[] = {&rows<Functors>..., &lanes<Functors>...};
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
