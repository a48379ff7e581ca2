#pragma once

#include "framework/base/status.h"
#include "kernels/cpu/onednn.h"
#include "kernels/device.h"

namespace millrace::kernels {

/// Convolution and its gradients as products of matrices of copied windows, for element types and
/// forms that oneDNN lacks, and for comparison. T is float or double.
///
/// \param spec  one to three spatial dims; weights are row-major
/// Images are [batch, channels, spatial...]. Strides, dilations, padding, groups and accumulate of
/// the spec are respected; bias and rectifier are the caller's.
/// Uses scratch slot 0. Errors: kResource.
template <typename T>
Status plain_convolution(CpuDevice& device, const dnn::Convolution& spec, const T* src,
                         const T* weights, T* dst);
/// The gradient of the images; overwrites diff_src.
template <typename T>
Status plain_convolution_backward_data(CpuDevice& device, const dnn::Convolution& spec,
                                       const T* diff_dst, const T* weights, T* diff_src);
/// The gradient of the weights; overwrites diff_weights.
template <typename T>
Status plain_convolution_backward_weights(CpuDevice& device, const dnn::Convolution& spec,
                                          const T* src, const T* diff_dst, T* diff_weights);

}  // namespace millrace::kernels
