// kernels/gpu/cuda/dnn_api.h must match the header of cuDNN. Built if that header is installed.

#include <cstddef>

#include <cudnn.h>
#include <gtest/gtest.h>

#include "kernels/gpu/cuda/dnn_api.h"
#include "tests/kernels/gpu_api_alike.h"

namespace millrace::gpu::dnn {
namespace {

TEST(CudnnApi, FunctionsTakeWhatTheyAreGiven) {
  static_assert(kAlike<decltype(Api::GetVersion), decltype(&cudnnGetVersion)>);
  static_assert(kAlike<decltype(Api::GetErrorString), decltype(&cudnnGetErrorString)>);
  static_assert(kAlike<decltype(Api::Create), decltype(&cudnnCreate)>);
  static_assert(kAlike<decltype(Api::Destroy), decltype(&cudnnDestroy)>);
  static_assert(kAlike<decltype(Api::SetStream), decltype(&cudnnSetStream)>);
  static_assert(
      kAlike<decltype(Api::CreateTensorDescriptor), decltype(&cudnnCreateTensorDescriptor)>);
  static_assert(
      kAlike<decltype(Api::DestroyTensorDescriptor), decltype(&cudnnDestroyTensorDescriptor)>);
  static_assert(
      kAlike<decltype(Api::SetTensor4dDescriptor), decltype(&cudnnSetTensor4dDescriptor)>);
  static_assert(
      kAlike<decltype(Api::CreateFilterDescriptor), decltype(&cudnnCreateFilterDescriptor)>);
  static_assert(
      kAlike<decltype(Api::DestroyFilterDescriptor), decltype(&cudnnDestroyFilterDescriptor)>);
  static_assert(
      kAlike<decltype(Api::SetFilter4dDescriptor), decltype(&cudnnSetFilter4dDescriptor)>);
  static_assert(kAlike<decltype(Api::CreateConvolutionDescriptor),
                       decltype(&cudnnCreateConvolutionDescriptor)>);
  static_assert(kAlike<decltype(Api::DestroyConvolutionDescriptor),
                       decltype(&cudnnDestroyConvolutionDescriptor)>);
  static_assert(kAlike<decltype(Api::SetConvolution2dDescriptor),
                       decltype(&cudnnSetConvolution2dDescriptor)>);
  static_assert(
      kAlike<decltype(Api::SetConvolutionGroupCount), decltype(&cudnnSetConvolutionGroupCount)>);
  static_assert(
      kAlike<decltype(Api::SetConvolutionMathType), decltype(&cudnnSetConvolutionMathType)>);
  static_assert(kAlike<decltype(Api::GetConvolutionForwardAlgorithm_v7),
                       decltype(&cudnnGetConvolutionForwardAlgorithm_v7)>);
  static_assert(kAlike<decltype(Api::GetConvolutionBackwardDataAlgorithm_v7),
                       decltype(&cudnnGetConvolutionBackwardDataAlgorithm_v7)>);
  static_assert(kAlike<decltype(Api::GetConvolutionBackwardFilterAlgorithm_v7),
                       decltype(&cudnnGetConvolutionBackwardFilterAlgorithm_v7)>);
  static_assert(kAlike<decltype(Api::ConvolutionForward), decltype(&cudnnConvolutionForward)>);
  static_assert(
      kAlike<decltype(Api::ConvolutionBackwardData), decltype(&cudnnConvolutionBackwardData)>);
  static_assert(
      kAlike<decltype(Api::ConvolutionBackwardFilter), decltype(&cudnnConvolutionBackwardFilter)>);
}

template <typename Theirs>
void expect_algo_perf() {
  EXPECT_EQ(sizeof(AlgoPerf), sizeof(Theirs));
  EXPECT_EQ(offsetof(AlgoPerf, algo), offsetof(Theirs, algo));
  EXPECT_EQ(offsetof(AlgoPerf, status), offsetof(Theirs, status));
  EXPECT_EQ(offsetof(AlgoPerf, time), offsetof(Theirs, time));
  EXPECT_EQ(offsetof(AlgoPerf, memory), offsetof(Theirs, memory));
  EXPECT_EQ(offsetof(AlgoPerf, determinism), offsetof(Theirs, determinism));
  EXPECT_EQ(offsetof(AlgoPerf, math_type), offsetof(Theirs, mathType));
}

TEST(CudnnApi, RecordsAndNumbers) {
  expect_algo_perf<cudnnConvolutionFwdAlgoPerf_t>();
  expect_algo_perf<cudnnConvolutionBwdDataAlgoPerf_t>();
  expect_algo_perf<cudnnConvolutionBwdFilterAlgoPerf_t>();
  EXPECT_EQ(kSuccess, CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(kDataFloat, CUDNN_DATA_FLOAT);
  EXPECT_EQ(kDataHalf, CUDNN_DATA_HALF);
  EXPECT_EQ(kDataBfloat16, CUDNN_DATA_BFLOAT16);
  EXPECT_EQ(kTensorNchw, CUDNN_TENSOR_NCHW);
  EXPECT_EQ(kCrossCorrelation, CUDNN_CROSS_CORRELATION);
  EXPECT_EQ(kDefaultMath, CUDNN_DEFAULT_MATH);
  EXPECT_EQ(kFmaMath, CUDNN_FMA_MATH);
  EXPECT_EQ(kTensorOpMath, CUDNN_TENSOR_OP_MATH);
  EXPECT_EQ(kDeterministic, CUDNN_DETERMINISTIC);
  EXPECT_EQ(CUDNN_STATUS_NOT_SUPPORTED / 1000, 3);
}

}  // namespace
}  // namespace millrace::gpu::dnn
