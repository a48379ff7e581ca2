#pragma once

#include <cmath>
#include <functional>
#include <tuple>
#include <utility>

#include "tests/cuda_standin/grid.h"
#include "tests/cuda_standin/runtime.h"

/// What the CUDA compiler provides to kernels/gpu/cuda/launch.cu, for a C++ compiler; this header
/// is included before that source. Names and macros are CUDA's.
#define __global__
#define __device__
#define __shared__ static

inline void __syncthreads() {
  millrace::standin::wait_for_block();
}
inline double __shfl_down_sync(unsigned mask, double value, unsigned delta) {
  return millrace::standin::shuffle_down(mask, value, delta);
}
inline double __shfl_xor_sync(unsigned mask, double value, unsigned bits) {
  return millrace::standin::shuffle_xor(mask, value, bits);
}

/// Queues a kernel; arguments are copied.
template <typename... Wanted, typename... Given>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Wanted...),
                               Given&&... given) {
  const std::tuple<Wanted...> arguments(std::forward<Given>(given)...);
  return millrace::standin::launch(config, [kernel, arguments] { std::apply(kernel, arguments); });
}
