// The stand-ins of cuBLASLt and cuDNN refuse wrong descriptors, operands and workspaces. Their
// results are compared through the device (device_test.cc).

#include <vector>

#include <cublasLt.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/gpu/cuda/dnn_api.h"
#include "tests/cuda_standin/dnn_functions.h"
#include "tests/cuda_standin/runtime.h"

namespace millrace::standin {
namespace {

using namespace gpu::dnn;

constexpr int kBadParam = 2000;

class Libraries : public ::testing::Test {
 protected:
  void SetUp() override {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMallocAsync(&data_, kBytes, stream_), cudaSuccess);
    EXPECT_EQ(cudaMallocAsync(&scratch_, kBytes, stream_), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(data_, 0, kBytes, stream_), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaFreeAsync(data_, stream_), cudaSuccess);
    EXPECT_EQ(cudaFreeAsync(scratch_, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(live().handles, 0U);
  }
  // Part of the data, in floats.
  float* at(size_t index) { return static_cast<float*>(data_) + index; }

  static constexpr size_t kBytes = 1 << 17;
  cudaStream_t stream_ = nullptr;
  void* data_ = nullptr;
  void* scratch_ = nullptr;
};

// A product of 2 x 3 by 3 x 4.
class Products : public Libraries {
 protected:
  void SetUp() override {
    Libraries::SetUp();
    EXPECT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescCreate(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&a_, CUDA_R_32F, 2, 3, 2), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&b_, CUDA_R_32F, 3, 4, 3), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&c_, CUDA_R_32F, 2, 4, 2), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulPreferenceCreate(&preference_), CUBLAS_STATUS_SUCCESS);
    allow(1 << 20);
  }
  void TearDown() override {
    EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference_), CUBLAS_STATUS_SUCCESS);
    for (cublasLtMatrixLayout_t const layout : {a_, b_, c_})
      EXPECT_EQ(cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescDestroy(desc_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtDestroy(handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtDestroy(handle_), CUBLAS_STATUS_INVALID_VALUE);
    Libraries::TearDown();
  }
  void allow(size_t bytes) {
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(
                  preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
              CUBLAS_STATUS_SUCCESS);
  }
  cublasStatus_t choose() {
    return cublasLtMatmulAlgoGetHeuristic(handle_, desc_, a_, b_, c_, c_, preference_, 1, &found_,
                                          &count_);
  }
  cublasStatus_t multiply(void* scratch, size_t bytes) {
    const float one = 1;
    const float zero = 0;
    return cublasLtMatmul(handle_, desc_, &one, at(0), a_, at(128), b_, &zero, result_, c_, result_,
                          c_, &found_.algo, scratch, bytes, stream_);
  }

  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr;
  cublasLtMatrixLayout_t b_ = nullptr;
  cublasLtMatrixLayout_t c_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cublasLtMatmulHeuristicResult_t found_{};
  int count_ = 0;
  float* result_ = nullptr;
};

TEST_F(Products, NeedTheirWorkspaceAndOperandsInDeviceMemory) {
  result_ = at(192);
  EXPECT_EQ(multiply(scratch_, kBytes), CUBLAS_STATUS_INVALID_VALUE);  // no algorithm was chosen
  EXPECT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(count_, 1);
  EXPECT_EQ(multiply(scratch_, found_.workspaceSize), CUBLAS_STATUS_SUCCESS);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(multiply(scratch_, found_.workspaceSize - 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("cuBLASLt: the workspace is too small"));
  EXPECT_EQ(multiply(nullptr, kBytes), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(static_cast<char*>(scratch_) + 4, found_.workspaceSize),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(scratch_, kBytes + 1), CUBLAS_STATUS_INVALID_VALUE);  // beyond its end
  std::vector<float> host(8);
  result_ = host.data();
  EXPECT_EQ(multiply(scratch_, kBytes), CUBLAS_STATUS_INVALID_VALUE);
  result_ = at(193);  // less aligned than the library assumes
  EXPECT_EQ(multiply(scratch_, kBytes), CUBLAS_STATUS_INVALID_VALUE);
  result_ = at(kBytes / sizeof(float) - 7);  // one element too few
  EXPECT_EQ(multiply(scratch_, kBytes), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

TEST_F(Products, NeedDescriptorsThatFit) {
  const int32_t turn = CUBLAS_OP_T;
  const auto set = [&](size_t bytes) {
    return cublasLtMatmulDescSetAttribute(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &turn, bytes);
  };
  EXPECT_EQ(set(8), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(set(sizeof turn), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(choose(), CUBLAS_STATUS_INVALID_VALUE);  // 3 x 2 by 3 x 4
  const int32_t plain = CUBLAS_OP_N;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &plain, 4),
            CUBLAS_STATUS_SUCCESS);
  const int32_t batch = 2;
  const int64_t stride = 7;  // of results that have eight elements
  for (cublasLtMatrixLayout_t const layout : {a_, b_, c_}) {
    EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                               sizeof batch),
              CUBLAS_STATUS_SUCCESS);
  }
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(c_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &stride, sizeof(int32_t)),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(c_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &stride, sizeof stride),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(choose(), CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatrixLayout_t narrow = nullptr;
  EXPECT_EQ(cublasLtMatrixLayoutCreate(&narrow, CUDA_R_32F, 2, 3, 1), CUBLAS_STATUS_SUCCESS);
  std::swap(narrow, a_);
  EXPECT_EQ(choose(), CUBLAS_STATUS_INVALID_VALUE);
  std::swap(narrow, a_);
  EXPECT_EQ(cublasLtMatrixLayoutDestroy(narrow), CUBLAS_STATUS_SUCCESS);
  std::swap(narrow, a_);
  EXPECT_EQ(choose(), CUBLAS_STATUS_INVALID_VALUE);  // destroyed
  std::swap(narrow, a_);
}

TEST_F(Products, NeedElementsOfOneType) {
  cublasLtMatrixLayout_t half = nullptr;
  EXPECT_EQ(cublasLtMatrixLayoutCreate(&half, CUDA_R_16F, 2, 3, 2), CUBLAS_STATUS_SUCCESS);
  std::swap(half, a_);
  EXPECT_EQ(choose(), CUBLAS_STATUS_INVALID_VALUE);
  std::swap(half, a_);
  EXPECT_EQ(cublasLtMatrixLayoutDestroy(half), CUBLAS_STATUS_SUCCESS);
}

TEST_F(Products, HaveNoAlgorithmWithoutWorkspace) {
  allow(16);
  EXPECT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(count_, 0);
}

TEST_F(Products, StayOnTheDeviceOfTheirHandle) {
  allow(1 << 20);
  result_ = at(192);
  EXPECT_EQ(choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  cublasLtHandle_t other = nullptr;
  EXPECT_EQ(cublasLtCreate(&other), CUBLAS_STATUS_SUCCESS);
  std::swap(other, handle_);
  EXPECT_EQ(multiply(scratch_, kBytes), CUBLAS_STATUS_INVALID_VALUE);
  std::swap(other, handle_);
  EXPECT_EQ(cublasLtDestroy(other), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(Libraries, ConvolutionsNeedDescriptorsWorkspaceAndStream) {
  Handle handle = nullptr;
  TensorDesc x = nullptr;
  TensorDesc y = nullptr;
  FilterDesc w = nullptr;
  ConvDesc conv = nullptr;
  EXPECT_EQ(cudnnCreate(&handle), kSuccess);
  EXPECT_EQ(cudnnCreateTensorDescriptor(&x), kSuccess);
  EXPECT_EQ(cudnnCreateTensorDescriptor(&y), kSuccess);
  EXPECT_EQ(cudnnCreateFilterDescriptor(&w), kSuccess);
  EXPECT_EQ(cudnnCreateConvolutionDescriptor(&conv), kSuccess);
  AlgoPerf perf[10];
  int found = 0;
  const auto choose = [&] {
    return cudnnGetConvolutionForwardAlgorithm_v7(handle, x, w, conv, y, 10, &found, perf);
  };
  const auto run = [&](int algo, size_t bytes) {
    const float one = 1;
    const float zero = 0;
    return cudnnConvolutionForward(handle, &one, x, at(0), w, at(1000), conv, algo, scratch_, bytes,
                                   &zero, y, at(2000));
  };
  EXPECT_EQ(choose(), kBadParam);  // nothing is set
  EXPECT_EQ(cudnnSetTensor4dDescriptor(x, kTensorNchw, kDataFloat, 1, 2, 5, 0), kBadParam);
  EXPECT_EQ(cudnnSetTensor4dDescriptor(x, kTensorNchw, kDataFloat, 1, 2, 5, 5), kSuccess);
  EXPECT_EQ(cudnnSetTensor4dDescriptor(y, kTensorNchw, kDataFloat, 1, 4, 3, 3), kSuccess);
  EXPECT_EQ(cudnnSetFilter4dDescriptor(w, kDataFloat, kTensorNchw, 4, 1, 3, 3), kSuccess);
  EXPECT_EQ(cudnnSetConvolution2dDescriptor(conv, 0, 0, 0, 1, 1, 1, kCrossCorrelation, kDataFloat),
            kBadParam);  // stride
  EXPECT_EQ(cudnnSetConvolution2dDescriptor(conv, 0, 0, 1, 1, 1, 1, kCrossCorrelation, kDataFloat),
            kSuccess);
  EXPECT_EQ(choose(), kBadParam);  // needs two groups
  EXPECT_EQ(cudnnSetConvolutionGroupCount(conv, 2), kSuccess);
  EXPECT_EQ(cudnnSetConvolutionMathType(conv, 17), kBadParam);
  EXPECT_EQ(cudnnSetConvolutionMathType(conv, kFmaMath), kSuccess);
  EXPECT_EQ(choose(), kSuccess);
  EXPECT_GT(found, 2);
  EXPECT_EQ(cudnnSetTensor4dDescriptor(y, kTensorNchw, kDataFloat, 1, 4, 4, 3), kSuccess);
  EXPECT_EQ(choose(), kBadParam);  // does not follow from the window
  EXPECT_EQ(cudnnSetTensor4dDescriptor(y, kTensorNchw, kDataFloat, 1, 4, 3, 3), kSuccess);
  EXPECT_EQ(cudnnSetStream(handle, stream_), kSuccess);
  EXPECT_EQ(run(3, 65536), kSuccess);
  EXPECT_EQ(run(3, 65535), kBadParam);
  EXPECT_EQ(run(5, 65536), 3000);
  EXPECT_EQ(run(77, 65536), 3000);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudnnDestroyConvolutionDescriptor(conv), kSuccess);
  EXPECT_EQ(choose(), kBadParam);
  EXPECT_EQ(cudnnDestroyFilterDescriptor(w), kSuccess);
  EXPECT_EQ(cudnnDestroyTensorDescriptor(y), kSuccess);
  EXPECT_EQ(cudnnDestroyTensorDescriptor(x), kSuccess);
  EXPECT_EQ(cudnnDestroyTensorDescriptor(x), kBadParam);
  EXPECT_EQ(cudnnDestroy(handle), kSuccess);
  EXPECT_STREQ(cudnnGetErrorString(3000), "CUDNN_STATUS_NOT_SUPPORTED");
}

}  // namespace
}  // namespace millrace::standin
