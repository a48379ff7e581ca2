// A stand-in for libcublasLt.so.13: strict about descriptors, and plain loops for products.

#include <cstring>
#include <string>

#include <cublasLt.h>

#include "kernels/gpu/functors/halves.h"
#include "tests/cuda_standin/registry.h"

namespace millrace::standin {
namespace {

constexpr size_t kScratchBytes = 4096;  // of its only algorithm
constexpr size_t kScratchAlignment = 16;
constexpr uint64_t kAlgoMark = 0x5354414E44494E;  // marks records that the heuristic has made

struct BlasHandle {
  int device = 0;
};
struct Desc {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  int32_t turn_a = CUBLAS_OP_N;
  int32_t turn_b = CUBLAS_OP_N;
};
struct Layout {
  cudaDataType type = CUDA_R_32F;
  uint64_t rows = 0;
  uint64_t columns = 0;
  int64_t leading = 0;
  int32_t batch = 1;
  int64_t stride = 0;
};
struct Preference {
  uint64_t scratch_bytes = 0;
  uint32_t alignment = 256;  // of all operands
};

struct Blas {
  Registry<BlasHandle, cublasLtHandle_t> handles;
  Registry<Desc, cublasLtMatmulDesc_t> descs;
  Registry<Layout, cublasLtMatrixLayout_t> layouts;
  Registry<Preference, cublasLtMatmulPreference_t> preferences;
};
Blas& blas() {
  static Blas* const kBlas = new Blas;
  return *kBlas;
}

cublasStatus_t refused(const std::string& why) {
  explain("cuBLASLt: " + why);
  return CUBLAS_STATUS_INVALID_VALUE;
}

// A product of column-major matrices, d = alpha a' b' + beta c, whose descriptors have been found.
struct Product {
  const Desc* desc = nullptr;
  const Layout* a = nullptr;
  const Layout* b = nullptr;
  const Layout* c = nullptr;
  const Layout* d = nullptr;

  [[nodiscard]] uint64_t rows() const { return desc->turn_a == CUBLAS_OP_N ? a->rows : a->columns; }
  [[nodiscard]] uint64_t inner() const {
    return desc->turn_a == CUBLAS_OP_N ? a->columns : a->rows;
  }
  [[nodiscard]] uint64_t columns() const {
    return desc->turn_b == CUBLAS_OP_N ? b->columns : b->rows;
  }
  [[nodiscard]] uint64_t inner_of_b() const {
    return desc->turn_b == CUBLAS_OP_N ? b->rows : b->columns;
  }

  [[nodiscard]] std::string problem() const {
    for (const Layout* const layout : {a, b, c, d}) {
      if (layout->type != d->type) return "elements of several types";
      if (layout->rows == 0 || layout->columns == 0) return "an empty matrix";
      if (layout->leading < static_cast<int64_t>(layout->rows)) return "a leading dim below rows";
      if (layout->batch != d->batch) return "different batches";
      if (layout->batch > 1 && layout->stride < 0) return "a negative stride";
    }
    if (d->type != CUDA_R_32F && desc->compute != CUBLAS_COMPUTE_32F)
      return "16-bit elements with sums that round floats";
    if (inner() != inner_of_b()) return "inner dims that differ";
    for (const Layout* const layout : {c, d}) {
      if (layout->rows != rows() || layout->columns != columns()) return "dims of the result";
      if (layout->batch > 1 && layout->stride < layout->leading * static_cast<int64_t>(columns()))
        return "results of a batch that overlap";
    }
    return "";
  }
};

// Elements from the first to one past the last of all matrices of a layout.
size_t extent(const Layout& l) {
  const int64_t matrix =
      l.leading * static_cast<int64_t>(l.columns - 1) + static_cast<int64_t>(l.rows);
  return static_cast<size_t>(matrix + (l.batch - 1) * l.stride);
}

// Null members if a handle is unknown.
bool find_product(Product& p, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                  cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  p = {blas().descs.find(desc), blas().layouts.find(a), blas().layouts.find(b),
       blas().layouts.find(c), blas().layouts.find(d)};
  return p.desc != nullptr && p.a != nullptr && p.b != nullptr && p.c != nullptr && p.d != nullptr;
}

size_t size_of(const Layout& l) {
  return l.type == CUDA_R_32F ? sizeof(float) : sizeof(uint16_t);
}

struct Operands {
  const void* a;
  const void* b;
  const void* c;
  void* d;
  float alpha;
  float beta;
};

template <typename T>
void multiply(const Desc desc, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
              const Operands& o, uint64_t inner) {
  for (int32_t n = 0; n < d.batch; ++n) {
    const T* const x = static_cast<const T*>(o.a) + n * a.stride;
    const T* const y = static_cast<const T*>(o.b) + n * b.stride;
    const int64_t x_row = desc.turn_a == CUBLAS_OP_N ? 1 : a.leading;
    const int64_t x_inner = desc.turn_a == CUBLAS_OP_N ? a.leading : 1;
    const int64_t y_inner = desc.turn_b == CUBLAS_OP_N ? 1 : b.leading;
    const int64_t y_column = desc.turn_b == CUBLAS_OP_N ? b.leading : 1;
    for (int64_t j = 0; j < static_cast<int64_t>(d.columns); ++j) {
      for (int64_t i = 0; i < static_cast<int64_t>(d.rows); ++i) {
        double sum = 0;
        for (int64_t k = 0; k < static_cast<int64_t>(inner); ++k)
          sum += static_cast<double>(x[i * x_row + k * x_inner]) *
                 static_cast<double>(y[k * y_inner + j * y_column]);
        float value = o.alpha * static_cast<float>(sum);
        if (o.beta != 0.0F)
          value += o.beta *
                   static_cast<float>(static_cast<const T*>(o.c)[n * c.stride + j * c.leading + i]);
        static_cast<T*>(o.d)[n * d.stride + j * d.leading + i] = static_cast<T>(value);
      }
    }
  }
}

// Sets a member from the bytes of an attribute; false if there are too few or too many.
template <typename T>
bool take(T& to, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof to) return false;
  std::memcpy(&to, value, sizeof to);
  return true;
}

cublasStatus_t removed(bool good) {
  return good ? CUBLAS_STATUS_SUCCESS : refused("an unknown or destroyed handle is destroyed");
}

}  // namespace
}  // namespace millrace::standin

using namespace millrace::standin;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  int device = 0;
  if (handle == nullptr) return refused("null");
  if (cudaGetDevice(&device) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = blas().handles.add({device});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return removed(blas().handles.remove(handle));
}
size_t cublasLtGetVersion(void) {
  return 130000;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (desc == nullptr || scale != CUDA_R_32F) return refused("null or an unknown type");
  if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32 &&
      compute != CUBLAS_COMPUTE_32F_FAST_16BF)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  *desc = blas().descs.add({compute});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return removed(blas().descs.remove(desc));
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  Desc* const desc = blas().descs.find(handle);
  if (desc == nullptr) return refused("unknown descriptor");
  int32_t turn = 0;
  if (!take(turn, value, bytes) || turn < CUBLAS_OP_N || turn > CUBLAS_OP_T)
    return refused("a transposition of another size or value");
  if (attribute != CUBLASLT_MATMUL_DESC_TRANSA && attribute != CUBLASLT_MATMUL_DESC_TRANSB)
    return refused("an attribute that the stand-in lacks");
  (attribute == CUBLASLT_MATMUL_DESC_TRANSA ? desc->turn_a : desc->turn_b) = turn;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  if (layout == nullptr || (type != CUDA_R_32F && type != CUDA_R_16F && type != CUDA_R_16BF))
    return refused("null or an unknown type");
  *layout = blas().layouts.add({type, rows, columns, leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return removed(blas().layouts.remove(layout));
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  Layout* const layout = blas().layouts.find(handle);
  if (layout == nullptr) return refused("unknown layout");
  bool good = false;
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    good = take(layout->batch, value, bytes) && layout->batch >= 1;
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    good = take(layout->stride, value, bytes);
  return good ? CUBLAS_STATUS_SUCCESS : refused("an attribute of another size or value");
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  if (preference == nullptr) return refused("null");
  *preference = blas().preferences.add({});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return removed(blas().preferences.remove(preference));
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  Preference* const preference = blas().preferences.find(handle);
  if (preference == nullptr) return refused("unknown preference");
  bool good = false;
  uint32_t alignment = 0;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      good = take(preference->scratch_bytes, value, bytes);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      good = take(alignment, value, bytes) && alignment >= 2 && alignment <= 256;
      preference->alignment = alignment < preference->alignment ? alignment : preference->alignment;
      break;
    default:
      break;
  }
  return good ? CUBLAS_STATUS_SUCCESS : refused("unknown attribute, size or value");
}

// No algorithm is found for products of one column and row with more than 2^20 terms, so that
// callers meet that case.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  constexpr uint64_t kMostTerms = uint64_t{1} << 20U;
  Product product;
  const Preference* const limits = blas().preferences.find(preference);
  if (blas().handles.find(handle) == nullptr || limits == nullptr || wanted < 1 ||
      results == nullptr || count == nullptr || !find_product(product, desc, a, b, c, d))
    return refused("unknown handle, or null");
  if (const std::string problem = product.problem(); !problem.empty()) return refused(problem);
  const bool has_none =
      product.rows() == 1 && product.columns() == 1 && product.inner() > kMostTerms;
  *count = has_none || limits->scratch_bytes < kScratchBytes ? 0 : 1;
  if (*count == 0) return CUBLAS_STATUS_SUCCESS;
  *results = {};
  results->algo.data[0] = kAlgoMark;
  results->algo.data[1] = product.rows();
  results->algo.data[2] = product.inner();
  results->algo.data[3] = product.columns();
  results->algo.data[4] = limits->alignment;
  results->workspaceSize = kScratchBytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const BlasHandle* const own = blas().handles.find(handle);
  Product p;
  if (own == nullptr || alpha == nullptr || beta == nullptr || algo == nullptr ||
      !find_product(p, desc, a_layout, b_layout, c_layout, d_layout))
    return refused("unknown handle, or null");
  if (const std::string problem = p.problem(); !problem.empty()) return refused(problem);
  if (device_of(stream) != own->device) return refused("the handle belongs to another device");
  if (algo->data[0] != kAlgoMark || algo->data[1] != p.rows() || algo->data[2] != p.inner() ||
      algo->data[3] != p.columns())
    return refused("the algorithm was chosen for another product");
  if (workspace_bytes < kScratchBytes || !is_on_device(workspace, workspace_bytes, own->device) ||
      reinterpret_cast<uintptr_t>(workspace) % kScratchAlignment != 0)
    return refused("the workspace is too small, unaligned, or not in device memory");
  Operands o{};
  std::memcpy(&o.alpha, alpha, sizeof o.alpha);
  std::memcpy(&o.beta, beta, sizeof o.beta);
  o.a = a;
  o.b = b;
  o.c = c;
  o.d = d;
  for (const auto& [data, layout] :
       {std::pair{a, p.a}, {b, p.b}, {c, p.c}, {const_cast<const void*>(d), p.d}}) {
    if (!is_on_device(data, extent(*layout) * size_of(*layout), own->device))
      return refused("an operand is not within device memory");
    if (reinterpret_cast<uintptr_t>(data) % algo->data[4] != 0)
      return refused("an operand is less aligned than the preference says");
  }
  const cudaError_t queued = enqueue(
      stream, "cublasLtMatmul",
      [=, desc_copy = *p.desc, la = *p.a, lb = *p.b, lc = *p.c, ld = *p.d, inner = p.inner()] {
        std::memset(workspace, 0xA5, workspace_bytes);
        switch (ld.type) {
          case CUDA_R_16F:
            multiply<millrace::gpu::Half>(desc_copy, la, lb, lc, ld, o, inner);
            break;
          case CUDA_R_16BF:
            multiply<millrace::gpu::Brain>(desc_copy, la, lb, lc, ld, o, inner);
            break;
          default:
            multiply<float>(desc_copy, la, lb, lc, ld, o, inner);
        }
        return Progress::kDone;
      });
  return queued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
