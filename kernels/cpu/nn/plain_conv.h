#pragma once

#include "framework/base/status.h"
#include "kernels/cpu/onednn.h"
#include "kernels/device.h"

namespace millrace::kernels {

/// Convolution and its gradients as products of matrices of copied windows, for element types and
/// forms that oneDNN lacks, and for comparison. T is float or double.
///
/// \param spec  one to three spatial dims; weights are row-major
/// Uses scratch slot 0. Errors: kResource.
template <typename T>
Status plain_convolution(CpuDevice& device, const dnn::Convolution& spec, const T* src,
                         const T* weights, T* dst);
template <typename T>
Status plain_convolution_backward_data(CpuDevice& device, const dnn::Convolution& spec,
                                       const T* diff_dst, const T* weights, T* diff_src);
template <typename T>
Status plain_convolution_backward_weights(CpuDevice& device, const dnn::Convolution& spec,
                                          const T* src, const T* diff_dst, T* diff_weights);

}  // namespace millrace::kernels
