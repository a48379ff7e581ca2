// The declarations of the stand-in agree with NVIDIA's headers, except for records that have more
// members there. Built if those headers are installed.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "tests/kernels/gpu_api_alike.h"

#undef cudaStreamNonBlocking
#undef cudaEventDisableTiming
/// Ours, without the linkage of C: the names are the same.
namespace ours {
#include "tests/cuda_standin/include/blas_types.h"
#include "tests/cuda_standin/include/cuda_types.h"
//
#include "tests/cuda_standin/include/blas_functions.h"
#include "tests/cuda_standin/include/cuda_functions.h"
}  // namespace ours

namespace millrace::standin {
namespace {

template <typename Ours, typename Theirs>
constexpr void same_function(Ours, Theirs) {
  static_assert(gpu::kAlike<Ours, Theirs>);
}
template <typename Ours, typename Theirs>
void same_number(Ours a, Theirs b) {
  EXPECT_EQ(static_cast<int64_t>(a), static_cast<int64_t>(b));
}

TEST(Declarations, FunctionsOfTheRuntime) {
  same_function(&ours::cudaGetDeviceCount, &::cudaGetDeviceCount);
  same_function(&ours::cudaGetDevice, &::cudaGetDevice);
  same_function(&ours::cudaSetDevice, &::cudaSetDevice);
  same_function(&ours::cudaGetDeviceProperties, &::cudaGetDeviceProperties);
  same_function(&ours::cudaDriverGetVersion, &::cudaDriverGetVersion);
  same_function(&ours::cudaDeviceSynchronize, &::cudaDeviceSynchronize);
  same_function(&ours::cudaGetErrorName, &::cudaGetErrorName);
  same_function(&ours::cudaGetErrorString, &::cudaGetErrorString);
  same_function(&ours::cudaGetLastError, &::cudaGetLastError);
  same_function(&ours::cudaPeekAtLastError, &::cudaPeekAtLastError);
  same_function(&ours::cudaMemGetInfo, &::cudaMemGetInfo);
  same_function(&ours::cudaDeviceGetDefaultMemPool, &::cudaDeviceGetDefaultMemPool);
  same_function(&ours::cudaMemPoolSetAttribute, &::cudaMemPoolSetAttribute);
  same_function(&ours::cudaMallocAsync, &::cudaMallocAsync);
  same_function(&ours::cudaFreeAsync, &::cudaFreeAsync);
  same_function(&ours::cudaMallocHost, &::cudaMallocHost);
  same_function(&ours::cudaFreeHost, &::cudaFreeHost);
  same_function(&ours::cudaMemcpyAsync, &::cudaMemcpyAsync);
  same_function(&ours::cudaMemsetAsync, &::cudaMemsetAsync);
  same_function(&ours::cudaStreamCreateWithFlags, &::cudaStreamCreateWithFlags);
  same_function(&ours::cudaStreamDestroy, &::cudaStreamDestroy);
  same_function(&ours::cudaStreamSynchronize, &::cudaStreamSynchronize);
  same_function(&ours::cudaStreamQuery, &::cudaStreamQuery);
  same_function(&ours::cudaStreamWaitEvent, &::cudaStreamWaitEvent);
  same_function(&ours::cudaEventCreateWithFlags, &::cudaEventCreateWithFlags);
  same_function(&ours::cudaEventDestroy, &::cudaEventDestroy);
  same_function(&ours::cudaEventRecord, &::cudaEventRecord);
  same_function(&ours::cudaEventSynchronize, &::cudaEventSynchronize);
  same_function(&ours::cudaEventQuery, &::cudaEventQuery);
  same_function(&ours::cudaEventElapsedTime, &::cudaEventElapsedTime);
  same_function(&ours::cudaStreamBeginCapture, &::cudaStreamBeginCapture);
  same_function(&ours::cudaStreamEndCapture, &::cudaStreamEndCapture);
  same_function(&ours::cudaStreamIsCapturing, &::cudaStreamIsCapturing);
  same_function(&ours::cudaGraphInstantiate, &::cudaGraphInstantiate);
  same_function(&ours::cudaGraphLaunch, &::cudaGraphLaunch);
  same_function(&ours::cudaGraphDestroy, &::cudaGraphDestroy);
  same_function(&ours::cudaGraphExecDestroy, &::cudaGraphExecDestroy);
}

TEST(Declarations, FunctionsOfCublasLt) {
  same_function(&ours::cublasLtCreate, &::cublasLtCreate);
  same_function(&ours::cublasLtDestroy, &::cublasLtDestroy);
  same_function(&ours::cublasLtGetVersion, &::cublasLtGetVersion);
  same_function(&ours::cublasLtMatmul, &::cublasLtMatmul);
  same_function(&ours::cublasLtMatmulAlgoGetHeuristic, &::cublasLtMatmulAlgoGetHeuristic);
  same_function(&ours::cublasLtMatmulDescCreate, &::cublasLtMatmulDescCreate);
  same_function(&ours::cublasLtMatmulDescDestroy, &::cublasLtMatmulDescDestroy);
  same_function(&ours::cublasLtMatmulDescSetAttribute, &::cublasLtMatmulDescSetAttribute);
  same_function(&ours::cublasLtMatrixLayoutCreate, &::cublasLtMatrixLayoutCreate);
  same_function(&ours::cublasLtMatrixLayoutDestroy, &::cublasLtMatrixLayoutDestroy);
  same_function(&ours::cublasLtMatrixLayoutSetAttribute, &::cublasLtMatrixLayoutSetAttribute);
  same_function(&ours::cublasLtMatmulPreferenceCreate, &::cublasLtMatmulPreferenceCreate);
  same_function(&ours::cublasLtMatmulPreferenceDestroy, &::cublasLtMatmulPreferenceDestroy);
  same_function(&ours::cublasLtMatmulPreferenceSetAttribute,
                &::cublasLtMatmulPreferenceSetAttribute);
}

TEST(Declarations, NumbersOfTheRuntime) {
  same_number(ours::cudaSuccess, ::cudaSuccess);
  same_number(ours::cudaErrorInvalidValue, ::cudaErrorInvalidValue);
  same_number(ours::cudaErrorMemoryAllocation, ::cudaErrorMemoryAllocation);
  same_number(ours::cudaErrorInvalidConfiguration, ::cudaErrorInvalidConfiguration);
  same_number(ours::cudaErrorNoDevice, ::cudaErrorNoDevice);
  same_number(ours::cudaErrorInvalidDevice, ::cudaErrorInvalidDevice);
  same_number(ours::cudaErrorInvalidResourceHandle, ::cudaErrorInvalidResourceHandle);
  same_number(ours::cudaErrorNotReady, ::cudaErrorNotReady);
  same_number(ours::cudaErrorIllegalAddress, ::cudaErrorIllegalAddress);
  same_number(ours::cudaErrorLaunchFailure, ::cudaErrorLaunchFailure);
  same_number(ours::cudaErrorStreamCaptureUnsupported, ::cudaErrorStreamCaptureUnsupported);
  same_number(ours::cudaErrorStreamCaptureInvalidated, ::cudaErrorStreamCaptureInvalidated);
  same_number(ours::cudaErrorStreamCaptureUnmatched, ::cudaErrorStreamCaptureUnmatched);
  same_number(ours::cudaErrorStreamCaptureUnjoined, ::cudaErrorStreamCaptureUnjoined);
  same_number(ours::cudaMemcpyHostToHost, ::cudaMemcpyHostToHost);
  same_number(ours::cudaMemcpyHostToDevice, ::cudaMemcpyHostToDevice);
  same_number(ours::cudaMemcpyDeviceToHost, ::cudaMemcpyDeviceToHost);
  same_number(ours::cudaMemcpyDeviceToDevice, ::cudaMemcpyDeviceToDevice);
  same_number(ours::cudaMemcpyDefault, ::cudaMemcpyDefault);
  same_number(ours::cudaMemPoolAttrReleaseThreshold, ::cudaMemPoolAttrReleaseThreshold);
  same_number(ours::cudaStreamCaptureModeGlobal, ::cudaStreamCaptureModeGlobal);
  same_number(ours::cudaStreamCaptureModeThreadLocal, ::cudaStreamCaptureModeThreadLocal);
  same_number(ours::cudaStreamCaptureModeRelaxed, ::cudaStreamCaptureModeRelaxed);
  same_number(ours::cudaStreamCaptureStatusNone, ::cudaStreamCaptureStatusNone);
  same_number(ours::cudaStreamCaptureStatusActive, ::cudaStreamCaptureStatusActive);
  same_number(ours::cudaStreamCaptureStatusInvalidated, ::cudaStreamCaptureStatusInvalidated);
  same_number(ours::kStreamNonBlocking, 1);   // cudaStreamNonBlocking
  same_number(ours::kEventDisableTiming, 2);  // cudaEventDisableTiming
}

TEST(Declarations, NumbersOfCublasLt) {
  same_number(ours::CUBLAS_STATUS_SUCCESS, ::CUBLAS_STATUS_SUCCESS);
  same_number(ours::CUBLAS_STATUS_NOT_INITIALIZED, ::CUBLAS_STATUS_NOT_INITIALIZED);
  same_number(ours::CUBLAS_STATUS_INVALID_VALUE, ::CUBLAS_STATUS_INVALID_VALUE);
  same_number(ours::CUBLAS_STATUS_EXECUTION_FAILED, ::CUBLAS_STATUS_EXECUTION_FAILED);
  same_number(ours::CUBLAS_STATUS_NOT_SUPPORTED, ::CUBLAS_STATUS_NOT_SUPPORTED);
  same_number(ours::CUBLAS_OP_N, ::CUBLAS_OP_N);
  same_number(ours::CUBLAS_OP_T, ::CUBLAS_OP_T);
  same_number(ours::CUBLAS_COMPUTE_32F, ::CUBLAS_COMPUTE_32F);
  same_number(ours::CUBLAS_COMPUTE_32F_FAST_TF32, ::CUBLAS_COMPUTE_32F_FAST_TF32);
  same_number(ours::CUBLAS_COMPUTE_32F_FAST_16BF, ::CUBLAS_COMPUTE_32F_FAST_16BF);
  same_number(ours::CUDA_R_32F, ::CUDA_R_32F);
  same_number(ours::CUDA_R_16F, ::CUDA_R_16F);
  same_number(ours::CUDA_R_16BF, ::CUDA_R_16BF);
  same_number(ours::CUBLASLT_MATMUL_DESC_TRANSA, ::CUBLASLT_MATMUL_DESC_TRANSA);
  same_number(ours::CUBLASLT_MATMUL_DESC_TRANSB, ::CUBLASLT_MATMUL_DESC_TRANSB);
  same_number(ours::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, ::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  same_number(ours::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
              ::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  same_number(ours::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
              ::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  same_number(ours::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
              ::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  same_number(ours::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
              ::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
  same_number(ours::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
              ::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
  same_number(ours::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
              ::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
}

TEST(Declarations, Records) {
  EXPECT_EQ(sizeof(ours::cublasLtMatmulAlgo_t), sizeof(::cublasLtMatmulAlgo_t));
  EXPECT_EQ(sizeof(ours::cublasLtMatmulHeuristicResult_t),
            sizeof(::cublasLtMatmulHeuristicResult_t));
  EXPECT_EQ(offsetof(ours::cublasLtMatmulHeuristicResult_t, workspaceSize),
            offsetof(::cublasLtMatmulHeuristicResult_t, workspaceSize));
  EXPECT_EQ(sizeof(ours::cudaLaunchConfig_t), sizeof(::cudaLaunchConfig_t));
  EXPECT_EQ(offsetof(ours::cudaLaunchConfig_t, stream), offsetof(::cudaLaunchConfig_t, stream));
  EXPECT_EQ(offsetof(ours::cudaLaunchConfig_t, numAttrs), offsetof(::cudaLaunchConfig_t, numAttrs));
  static_assert(
      std::is_same_v<decltype(ours::cudaDeviceProp::name), decltype(::cudaDeviceProp::name)>);
  static_assert(std::is_same_v<decltype(ours::cudaDeviceProp::totalGlobalMem),
                               decltype(::cudaDeviceProp::totalGlobalMem)>);
  static_assert(
      std::is_same_v<decltype(ours::cudaDeviceProp::major), decltype(::cudaDeviceProp::major)>);
  static_assert(
      std::is_same_v<decltype(ours::cudaDeviceProp::minor), decltype(::cudaDeviceProp::minor)>);
}

}  // namespace
}  // namespace millrace::standin
