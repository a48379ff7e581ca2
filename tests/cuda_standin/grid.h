#pragma once

#include <functional>

#include <cuda_runtime_api.h>

namespace millrace::standin {

/// Index of a thread or block; the members of CUDA's uint3.
struct Index {
  unsigned x = 0;  ///< the only dim that the stand-in has
  unsigned y = 0;
  unsigned z = 0;
};

/// Runs a kernel: `body` once per thread of each block, blocks one after the other. The threads of
/// a block take turns at barriers and shuffles only. Every second kernel starts with its last
/// thread, so that results that depend on the order differ.
/// \returns an empty text, or what the kernel did wrong: threads of a block or warp that wait for
/// threads that have ended or wait elsewhere
const char* run_grid(dim3 grid, dim3 block, const std::function<void()>& body);
/// Forgets the threads of a kernel that a fault has ended.
void abandon_grid();

/// __syncthreads().
void wait_for_block();
/// __shfl_down_sync() of 8 bytes.
double shuffle_down(unsigned mask, double value, unsigned delta);
/// The value of the lane whose number differs in these bits.
double shuffle_xor(unsigned mask, double value, unsigned bits);

}  // namespace millrace::standin

/// CUDA's built-in vars of the thread that runs. Kernels run one at a time.
extern millrace::standin::Index threadIdx;
extern millrace::standin::Index blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
