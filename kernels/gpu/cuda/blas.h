#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>

#include <cublasLt.h>

#include "kernels/gpu/cuda/library.h"
#include "kernels/gpu/cuda/scratch.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/functors/products.h"

namespace millrace::gpu {

/// Products of matrices by cuBLASLt, which open() loads. Plans are cached by shape.
/// Thread-safety: as the Device that owns it.
class Blas {
 public:
  /// Errors: kUnimplemented if the library cannot be loaded.
  /// \param stream  queue of the device; products run in it
  /// \param options  how factors may be rounded
  static StatusOr<std::unique_ptr<Blas>> open(cudaStream_t stream, const DeviceOptions& options);
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  ~Blas();

  /// "cuBLASLt 13.0.2".
  [[nodiscard]] std::string version() const;
  /// Queues the product. Errors: kUnimplemented if the library has no algorithm for it; kExecution.
  Status multiply(const MatrixProduct& product, Scratch& scratch);

 private:
  /// Functions of the library by their names without the prefix cublasLt.
  struct Api {
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtGetVersion) get_version;
    decltype(&cublasLtMatmul) matmul;
    decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic;
    decltype(&cublasLtMatmulDescCreate) desc_create;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutCreate) layout_create;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
    decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  };
  /// Everything about a product except its pointers and factors.
  struct Plan {
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t first = nullptr;   ///< layout of b of the product
    cublasLtMatrixLayout_t second = nullptr;  ///< layout of a of the product
    cublasLtMatrixLayout_t result = nullptr;
    cublasLtMatmulAlgo_t algo{};
    size_t scratch_bytes = 0;
  };
  /// The fields of a product that a plan depends on.
  using Key = std::array<int64_t, 12>;

  Blas(cudaStream_t stream, cublasComputeType_t type) : stream_(stream), type_(type) {}
  /// Finds the functions of api_. Errors: kUnimplemented; the message names the missing one.
  Status load(const SharedLibrary& library);
  Status check(cublasStatus_t status, const char* what) const;
  /// Creates the descriptors of a plan; choose() then asks the library for the best algorithm.
  Status make(const MatrixProduct& product, Plan& plan) const;
  Status make_layout(cublasLtMatrixLayout_t& layout, cudaDataType type, int64_t rows,
                     int64_t columns, int64_t batch, int64_t stride) const;
  /// \param alignment  of the operands, in bytes
  Status choose(Plan& plan, uint32_t alignment) const;

  cudaStream_t stream_;
  cublasComputeType_t type_;
  Api api_{};
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, Plan> plans_;
};

}  // namespace millrace::gpu
