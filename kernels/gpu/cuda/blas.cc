#include "kernels/gpu/cuda/blas.h"

#include <fmt/format.h>

namespace millrace::gpu {
namespace {

// Limit of a plan's workspace; only very large products benefit from more.
constexpr size_t kScratchBytes = size_t{32} << 20U;

// What the library assumes of operands if it is not told.
constexpr uint32_t kAlignment = 256;

// The largest power of two up to kAlignment that divides the addresses of all operands.
uint32_t alignment_of(const MatrixProduct& p) {
  const auto all = reinterpret_cast<uintptr_t>(p.a) | reinterpret_cast<uintptr_t>(p.b) |
                   reinterpret_cast<uintptr_t>(p.c);
  uint32_t alignment = kAlignment;
  while (all % alignment != 0) alignment /= 2;
  return alignment;
}

cudaDataType blas_type(Element element) {
  switch (element) {
    case Element::kFloat16:
      return CUDA_R_16F;
    case Element::kBfloat16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

cublasComputeType_t compute_type(const DeviceOptions& options) {
  if (options.bf16) return CUBLAS_COMPUTE_32F_FAST_16BF;
  return options.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

}  // namespace

StatusOr<std::unique_ptr<Blas>> Blas::open(cudaStream_t stream, const DeviceOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const SharedLibrary library,
                            SharedLibrary::open({"libcublasLt.so.13"}));
  std::unique_ptr<Blas> blas(new Blas(stream, compute_type(options)));
  MILLRACE_RETURN_IF_ERROR(blas->load(library));
  MILLRACE_RETURN_IF_ERROR(blas->check(blas->api_.create(&blas->handle_), "starting"));
  return blas;
}

Status Blas::load(const SharedLibrary& library) {
  MILLRACE_RETURN_IF_ERROR(library.find("cublasLtCreate", api_.create));
  MILLRACE_RETURN_IF_ERROR(library.find("cublasLtDestroy", api_.destroy));
  MILLRACE_RETURN_IF_ERROR(library.find("cublasLtGetVersion", api_.get_version));
  MILLRACE_RETURN_IF_ERROR(library.find("cublasLtMatmul", api_.matmul));
  MILLRACE_RETURN_IF_ERROR(library.find("cublasLtMatmulAlgoGetHeuristic", api_.get_heuristic));
  MILLRACE_RETURN_IF_ERROR(library.find("cublasLtMatmulDescCreate", api_.desc_create));
  MILLRACE_RETURN_IF_ERROR(library.find("cublasLtMatmulDescDestroy", api_.desc_destroy));
  MILLRACE_RETURN_IF_ERROR(library.find("cublasLtMatmulDescSetAttribute", api_.desc_set));
  MILLRACE_RETURN_IF_ERROR(library.find("cublasLtMatrixLayoutCreate", api_.layout_create));
  MILLRACE_RETURN_IF_ERROR(library.find("cublasLtMatrixLayoutDestroy", api_.layout_destroy));
  MILLRACE_RETURN_IF_ERROR(library.find("cublasLtMatrixLayoutSetAttribute", api_.layout_set));
  MILLRACE_RETURN_IF_ERROR(library.find("cublasLtMatmulPreferenceCreate", api_.preference_create));
  MILLRACE_RETURN_IF_ERROR(
      library.find("cublasLtMatmulPreferenceDestroy", api_.preference_destroy));
  return library.find("cublasLtMatmulPreferenceSetAttribute", api_.preference_set);
}

Blas::~Blas() {
  for (auto& [key, plan] : plans_) {
    if (plan.desc != nullptr) api_.desc_destroy(plan.desc);
    for (cublasLtMatrixLayout_t const layout : {plan.first, plan.second, plan.result}) {
      if (layout != nullptr) api_.layout_destroy(layout);
    }
  }
  if (handle_ != nullptr) api_.destroy(handle_);
}

std::string Blas::version() const {
  const size_t number = api_.get_version();
  return fmt::format("cuBLASLt {}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

Status Blas::check(cublasStatus_t status, const char* what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return Ok();
  const StatusCode code =
      status == CUBLAS_STATUS_NOT_SUPPORTED ? StatusCode::kUnimplemented : StatusCode::kExecution;
  return {code, fmt::format("cuBLASLt: {}: status {}", what, static_cast<int>(status))};
}

// The library stores matrices column by column: each column has `rows` contiguous elements.
Status Blas::make_layout(cublasLtMatrixLayout_t& layout, cudaDataType type, int64_t rows,
                         int64_t columns, int64_t batch, int64_t stride) const {
  MILLRACE_RETURN_IF_ERROR(check(api_.layout_create(&layout, type, static_cast<uint64_t>(rows),
                                                    static_cast<uint64_t>(columns), rows),
                                 "describing a matrix"));
  if (batch == 1) return Ok();
  const auto count = static_cast<int32_t>(batch);
  MILLRACE_RETURN_IF_ERROR(
      check(api_.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
            "describing a batch"));
  return check(
      api_.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
      "describing a batch");
}

// A row-major matrix is a transposed matrix to the library, so it computes c' = b' x a'.
Status Blas::make(const MatrixProduct& p, Plan& plan) const {
  const cudaDataType type = blas_type(p.element);
  const cublasComputeType_t sums = type == CUDA_R_32F ? type_ : CUBLAS_COMPUTE_32F;
  MILLRACE_RETURN_IF_ERROR(
      check(api_.desc_create(&plan.desc, sums, CUDA_R_32F), "describing a product"));
  const cublasOperation_t turn_first = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t turn_second = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  MILLRACE_RETURN_IF_ERROR(
      check(api_.desc_set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, &turn_first, sizeof turn_first),
            "describing a product"));
  MILLRACE_RETURN_IF_ERROR(
      check(api_.desc_set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSB, &turn_second, sizeof turn_second),
            "describing a product"));
  MILLRACE_RETURN_IF_ERROR(make_layout(plan.first, type, p.transpose_b ? p.inner : p.columns,
                                       p.transpose_b ? p.columns : p.inner, p.batch, p.b_stride));
  MILLRACE_RETURN_IF_ERROR(make_layout(plan.second, type, p.transpose_a ? p.rows : p.inner,
                                       p.transpose_a ? p.inner : p.rows, p.batch, p.a_stride));
  MILLRACE_RETURN_IF_ERROR(make_layout(plan.result, type, p.columns, p.rows, p.batch, p.c_stride));
  return choose(plan, alignment_of(p));
}

Status Blas::choose(Plan& plan, uint32_t alignment) const {
  cublasLtMatmulPreference_t preference = nullptr;
  MILLRACE_RETURN_IF_ERROR(check(api_.preference_create(&preference), "choosing an algorithm"));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  Status status = check(api_.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &kScratchBytes, sizeof kScratchBytes),
                        "choosing an algorithm");
  for (const auto operand :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    if (alignment == kAlignment || !status.ok()) break;
    status = check(api_.preference_set(preference, operand, &alignment, sizeof alignment),
                   "choosing an algorithm");
  }
  if (status.ok()) {
    status = check(api_.get_heuristic(handle_, plan.desc, plan.first, plan.second, plan.result,
                                      plan.result, preference, 1, &found, &count),
                   "choosing an algorithm");
  }
  api_.preference_destroy(preference);
  MILLRACE_RETURN_IF_ERROR(std::move(status));
  if (count == 0) return {StatusCode::kUnimplemented, "cuBLASLt: no algorithm for the product"};
  plan.algo = found.algo;
  plan.scratch_bytes = found.workspaceSize;
  return Ok();
}

Status Blas::multiply(const MatrixProduct& p, Scratch& scratch) {
  const Key key{p.rows,
                p.inner,
                p.columns,
                p.transpose_a ? 1 : 0,
                p.transpose_b ? 1 : 0,
                p.batch,
                p.a_stride,
                p.b_stride,
                p.c_stride,
                p.beta == 0.0F ? 0 : 1,
                static_cast<int64_t>(p.element),
                alignment_of(p)};
  const auto [found, is_new] = plans_.try_emplace(key);
  Plan& plan = found->second;
  if (is_new) {
    if (Status status = make(p, plan); !status.ok()) {
      plans_.erase(found);
      return status;
    }
  }
  MILLRACE_ASSIGN_OR_RETURN(void* const memory, scratch.get(plan.scratch_bytes));
  return check(
      api_.matmul(handle_, plan.desc, &p.alpha, p.b, plan.first, p.a, plan.second, &p.beta, p.c,
                  plan.result, p.c, plan.result, &plan.algo, memory, plan.scratch_bytes, stream_),
      "multiplying");
}

}  // namespace millrace::gpu
