#pragma once

#include <cstddef>

#include "kernels/gpu/cuda/dnn_api.h"
#include "kernels/gpu/functors/products.h"

namespace millrace::standin {

/// Memory that a call gives to a convolution, and what its algorithm is like.
struct DnnWork {
  void* scratch = nullptr;
  size_t scratch_bytes = 0;  ///< that the caller says are there
  size_t needed_bytes = 0;
  bool is_deterministic = true;
};

/// Queues a convolution whose shape is checked already. Its operands and the scratch memory must be
/// memory of the handle's device.
/// \returns a status of cuDNN
int queue_convolution(gpu::dnn::Handle handle, const gpu::Convolution& c, const DnnWork& work);

/// What is wrong with the shape of a convolution that pads by `after` at the bottom and right;
/// empty: nothing.
const char* problem_of(const gpu::Convolution& c, const int64_t (&after)[2]);

/// Prints why a call is refused. \returns CUDNN_STATUS_BAD_PARAM
int dnn_refused(const char* why);

}  // namespace millrace::standin
