#pragma once

#include <cstdint>

#include "kernels/gpu/cuda/dnn_api.h"

/// The part of cuDNN's graph interface that millrace calls, declared as in dnn_api.h: descriptors
/// of one kind of object each, with attributes by number.
namespace millrace::gpu::dnn {

using Backend = void*;  ///< cudnnBackendDescriptor_t

/// Kinds of descriptors, cudnnBackendDescriptorType_t.
enum class Kind : int {
  kConvolution = 1,   ///< padding, strides and dilations of an operation
  kEngine = 2,        ///< a way to compute a graph
  kEngineConfig = 3,  ///< an engine with its settings
  kHeuristic = 4,     ///< the library's choice of engines for a graph
  kPlan = 5,          ///< an engine that is ready to run
  // operations of a graph
  kForward = 10,         ///< of Input and Filter
  kBackwardFilter = 11,  ///< gradient of Filter
  kBackwardData = 12,    ///< gradient of Input
  kGraph = 15,           ///< operations that are computed together; here one
  kPointers = 16,        ///< CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR
  kTensor = 17,          ///< type, dims and strides of an operand
};

/// Types of attributes, cudnnBackendAttributeType_t.
enum class Type : int {
  kHandle = 0,    ///< cudnnHandle_t
  kDataType = 1,  ///< cudnnDataType_t
  kInt64 = 3,
  kFloat = 4,
  kPointer = 6,  ///< an address in device memory
  kConvolutionMode = 7,
  kHeuristicMode = 8,
  kNumericalNote = 11,
  kDescriptor = 15,
  kBehaviorNote = 19,
};

/// Attributes, cudnnBackendAttributeName_t.
enum class Name : int {
  kConvolutionType = 100,  ///< of sums
  kConvolutionMode = 101,
  kDilations = 102,
  kStrides = 103,
  kPaddingAfter = 104,
  kPaddingBefore = 105,
  kSpatialDims = 106,
  kHeuristicMode = 200,
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kConfigEngine = 300,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanScratchBytes = 402,
  kForwardAlpha = 700,  ///< each operation has six: alpha, beta, convolution, and three tensors
  kForwardBeta = 701,
  kForwardConvolution = 702,
  kForwardFilter = 703,
  kForwardInput = 704,
  kForwardOutput = 705,
  kBackwardDataAlpha = 706,
  kBackwardDataBeta = 707,
  kBackwardDataConvolution = 708,
  kBackwardDataFilter = 709,
  kBackwardDataInput = 710,
  kBackwardDataOutput = 711,
  kBackwardFilterAlpha = 712,
  kBackwardFilterBeta = 713,
  kBackwardFilterConvolution = 714,
  kBackwardFilterFilter = 715,
  kBackwardFilterInput = 716,
  kBackwardFilterOutput = 717,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorDims = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kPointerIds = 1000,
  kPointerValues = 1001,
  kPointerScratch = 1003,
  kEngineNumericalNotes = 1303,
  kEngineBehaviorNotes = 1305,
};

inline constexpr int kHeuristicA = 3;  ///< CUDNN_HEUR_MODE_A: by a model of the speed

/// What an engine does to numbers, cudnnBackendNumericalNote_t.
inline constexpr int kNoteTensorCore = 0;         ///< rounds floats to TF32
inline constexpr int kNoteDownConvertInputs = 1;  ///< rounds floats to 16 bits
inline constexpr int kNoteReducedSums = 2;
inline constexpr int kNoteNotDeterministic = 4;
inline constexpr int kNumericalNotes = 10;

/// cudnnBackendBehaviorNote_t.
inline constexpr int kNoteRuntimeCompilation = 0;
inline constexpr int kBehaviorNotes = 5;

/// Functions by their names without the prefix cudnnBackend; and that for the text of a status.
struct EnginesApi {
  int (*CreateDescriptor)(Kind, Backend*);
  int (*DestroyDescriptor)(Backend);
  int (*Finalize)(Backend);
  int (*SetAttribute)(Backend, Name, Type, int64_t count, const void* values);
  int (*GetAttribute)(Backend, Name, Type, int64_t wanted, int64_t* count, void* values);
  int (*Execute)(Handle, Backend plan, Backend pointers);
  const char* (*GetErrorString)(int status);
};

}  // namespace millrace::gpu::dnn
