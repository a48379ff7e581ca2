// kernels/gpu/cuda/dnn_api.h and dnn_engines_api.h must match the header of cuDNN. Built if that
// header is installed.

#include <cstddef>

#include <cudnn.h>
#include <gtest/gtest.h>

#include "kernels/gpu/cuda/dnn_engines_api.h"
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

TEST(CudnnApi, FunctionsOfTheGraphInterface) {
  static_assert(
      kAlike<decltype(EnginesApi::CreateDescriptor), decltype(&cudnnBackendCreateDescriptor)>);
  static_assert(
      kAlike<decltype(EnginesApi::DestroyDescriptor), decltype(&cudnnBackendDestroyDescriptor)>);
  static_assert(kAlike<decltype(EnginesApi::Finalize), decltype(&cudnnBackendFinalize)>);
  static_assert(kAlike<decltype(EnginesApi::SetAttribute), decltype(&cudnnBackendSetAttribute)>);
  static_assert(kAlike<decltype(EnginesApi::GetAttribute), decltype(&cudnnBackendGetAttribute)>);
  static_assert(kAlike<decltype(EnginesApi::Execute), decltype(&cudnnBackendExecute)>);
}

TEST(CudnnApi, NumbersOfTheGraphInterface) {
  const auto same = [](auto ours, auto theirs) {
    EXPECT_EQ(static_cast<int>(ours), static_cast<int>(theirs));
  };
  same(Kind::kConvolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  same(Kind::kEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  same(Kind::kEngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  same(Kind::kHeuristic, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  same(Kind::kPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  same(Kind::kForward, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  same(Kind::kBackwardFilter, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
  same(Kind::kBackwardData, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
  same(Kind::kGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  same(Kind::kPointers, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  same(Kind::kTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  same(Type::kHandle, CUDNN_TYPE_HANDLE);
  same(Type::kDataType, CUDNN_TYPE_DATA_TYPE);
  same(Type::kInt64, CUDNN_TYPE_INT64);
  same(Type::kFloat, CUDNN_TYPE_FLOAT);
  same(Type::kPointer, CUDNN_TYPE_VOID_PTR);
  same(Type::kConvolutionMode, CUDNN_TYPE_CONVOLUTION_MODE);
  same(Type::kHeuristicMode, CUDNN_TYPE_HEUR_MODE);
  same(Type::kNumericalNote, CUDNN_TYPE_NUMERICAL_NOTE);
  same(Type::kDescriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  same(Type::kBehaviorNote, CUDNN_TYPE_BEHAVIOR_NOTE);
  same(Name::kConvolutionType, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
  same(Name::kConvolutionMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE);
  same(Name::kDilations, CUDNN_ATTR_CONVOLUTION_DILATIONS);
  same(Name::kStrides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  same(Name::kPaddingAfter, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  same(Name::kPaddingBefore, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  same(Name::kSpatialDims, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  same(Name::kHeuristicMode, CUDNN_ATTR_ENGINEHEUR_MODE);
  same(Name::kHeuristicGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  same(Name::kHeuristicResults, CUDNN_ATTR_ENGINEHEUR_RESULTS);
  same(Name::kConfigEngine, CUDNN_ATTR_ENGINECFG_ENGINE);
  same(Name::kPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
  same(Name::kPlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  same(Name::kPlanScratchBytes, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  same(Name::kGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
  same(Name::kGraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  same(Name::kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  same(Name::kTensorType, CUDNN_ATTR_TENSOR_DATA_TYPE);
  same(Name::kTensorDims, CUDNN_ATTR_TENSOR_DIMENSIONS);
  same(Name::kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES);
  same(Name::kTensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID);
  same(Name::kPointerIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  same(Name::kPointerValues, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  same(Name::kPointerScratch, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  same(Name::kEngineNumericalNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
  same(Name::kEngineBehaviorNotes, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE);
  same(Name::kForwardAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA);
  same(Name::kForwardBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
  same(Name::kForwardConvolution, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
  same(Name::kForwardFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
  same(Name::kForwardInput, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
  same(Name::kForwardOutput, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
  same(Name::kBackwardDataAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA);
  same(Name::kBackwardDataBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA);
  same(Name::kBackwardDataConvolution, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC);
  same(Name::kBackwardDataFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W);
  same(Name::kBackwardDataInput, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
  same(Name::kBackwardDataOutput, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
  same(Name::kBackwardFilterAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA);
  same(Name::kBackwardFilterBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
  same(Name::kBackwardFilterConvolution, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC);
  same(Name::kBackwardFilterFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
  same(Name::kBackwardFilterInput, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X);
  same(Name::kBackwardFilterOutput, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
  same(kHeuristicA, CUDNN_HEUR_MODE_A);
  same(kNoteTensorCore, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  same(kNoteDownConvertInputs, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
  same(kNoteReducedSums, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
  same(kNoteNotDeterministic, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  same(kNumericalNotes, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  same(kNoteRuntimeCompilation, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
  same(kBehaviorNotes, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
}

}  // namespace
}  // namespace millrace::gpu::dnn
