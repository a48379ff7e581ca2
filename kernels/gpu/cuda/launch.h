#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

// The interface between code compiled by the CUDA compiler and the rest: plain numbers and
// pointers.
namespace millrace::gpu {

/// Queues a functor of the list EachFunctors, or RowFunctors.
/// \param functor  its number
/// \param data     the functor object; it is copied
cudaError_t cuda_launch_each(size_t functor, const void* data, int64_t count, cudaStream_t stream);
cudaError_t cuda_launch_rows(size_t functor, const void* data, int64_t rows, cudaStream_t stream);

}  // namespace millrace::gpu
