#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

/// The part of cuDNN 9 that millrace calls, declared here so that a build does not need its header:
/// names, numbers and argument lists as in the library's reference. tests/kernels/gpu compares them
/// with the header if there is one.
namespace millrace::gpu::dnn {

using Handle = struct HandleTag*;
using TensorDesc = struct TensorTag*;
using FilterDesc = struct FilterTag*;
using ConvDesc = struct ConvTag*;

inline constexpr int kSuccess = 0;           ///< CUDNN_STATUS_SUCCESS
inline constexpr int kDataFloat = 0;         ///< CUDNN_DATA_FLOAT
inline constexpr int kDataHalf = 2;          ///< CUDNN_DATA_HALF
inline constexpr int kDataBfloat16 = 9;      ///< CUDNN_DATA_BFLOAT16
inline constexpr int kTensorNchw = 0;        ///< CUDNN_TENSOR_NCHW
inline constexpr int kCrossCorrelation = 1;  ///< CUDNN_CROSS_CORRELATION
inline constexpr int kDefaultMath = 0;       ///< CUDNN_DEFAULT_MATH: floats may be rounded to TF32
inline constexpr int kTensorOpMath = 1;      ///< CUDNN_TENSOR_OP_MATH
inline constexpr int kFmaMath = 3;           ///< CUDNN_FMA_MATH
inline constexpr int kDeterministic = 1;     ///< CUDNN_DETERMINISTIC

/// cudnnConvolutionFwdAlgoPerf_t, and those of the two gradients.
struct AlgoPerf {
  int algo;         ///< number of the algorithm, for the calls that compute
  int status;       ///< kSuccess if the algorithm supports the convolution
  float time;       ///< milliseconds; negative: not measured
  size_t memory;    ///< bytes of scratch memory
  int determinism;  ///< kDeterministic: the same bits in every run
  int math_type;    ///< that the algorithm was found for
  int reserved[3];
};

/// Functions by their names without the prefix cudnn.
struct Api {
  size_t (*GetVersion)();
  const char* (*GetErrorString)(int status);
  int (*Create)(Handle*);
  int (*Destroy)(Handle);
  int (*SetStream)(Handle, cudaStream_t);
  int (*CreateTensorDescriptor)(TensorDesc*);
  int (*DestroyTensorDescriptor)(TensorDesc);
  int (*SetTensor4dDescriptor)(TensorDesc, int format, int type, int n, int c, int h, int w);
  int (*CreateFilterDescriptor)(FilterDesc*);
  int (*DestroyFilterDescriptor)(FilterDesc);
  int (*SetFilter4dDescriptor)(FilterDesc, int type, int format, int k, int c, int h, int w);
  int (*CreateConvolutionDescriptor)(ConvDesc*);
  int (*DestroyConvolutionDescriptor)(ConvDesc);
  int (*SetConvolution2dDescriptor)(ConvDesc, int pad_h, int pad_w, int stride_h, int stride_w,
                                    int dilation_h, int dilation_w, int mode, int type);
  int (*SetConvolutionGroupCount)(ConvDesc, int groups);
  int (*SetConvolutionMathType)(ConvDesc, int math);
  int (*GetConvolutionForwardAlgorithm_v7)(Handle, TensorDesc x, FilterDesc w, ConvDesc,
                                           TensorDesc y, int wanted, int* found, AlgoPerf*);
  int (*GetConvolutionBackwardDataAlgorithm_v7)(Handle, FilterDesc w, TensorDesc dy, ConvDesc,
                                                TensorDesc dx, int wanted, int* found, AlgoPerf*);
  int (*GetConvolutionBackwardFilterAlgorithm_v7)(Handle, TensorDesc x, TensorDesc dy, ConvDesc,
                                                  FilterDesc dw, int wanted, int* found, AlgoPerf*);
  int (*ConvolutionForward)(Handle, const void* alpha, TensorDesc, const void* x, FilterDesc,
                            const void* w, ConvDesc, int algo, void* scratch, size_t scratch_bytes,
                            const void* beta, TensorDesc, void* y);
  int (*ConvolutionBackwardData)(Handle, const void* alpha, FilterDesc, const void* w, TensorDesc,
                                 const void* dy, ConvDesc, int algo, void* scratch,
                                 size_t scratch_bytes, const void* beta, TensorDesc, void* dx);
  int (*ConvolutionBackwardFilter)(Handle, const void* alpha, TensorDesc, const void* x, TensorDesc,
                                   const void* dy, ConvDesc, int algo, void* scratch,
                                   size_t scratch_bytes, const void* beta, FilterDesc, void* dw);
};

}  // namespace millrace::gpu::dnn
