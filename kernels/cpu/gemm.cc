#include "kernels/cpu/gemm.h"

#include <algorithm>

#include <Eigen/Core>

namespace millrace::kernels {
namespace gemm {
namespace {

struct GemmStrides {
  int64_t a;
  int64_t b;
  int64_t c;
};
GemmStrides strides_of(const GemmShape& s) {
  return {s.a_stride != 0 ? s.a_stride : (s.a_transposed ? s.rows : s.inner),
          s.b_stride != 0 ? s.b_stride : (s.b_transposed ? s.inner : s.columns),
          s.c_stride != 0 ? s.c_stride : s.columns};
}

// True if nothing is left to compute; clears c if the sum is empty.
template <typename T>
bool is_empty(const GemmShape& s, T* c) {
  if (s.rows == 0 || s.columns == 0) return true;
  if (s.inner > 0) return false;
  if (!s.accumulate) {
    const int64_t stride = strides_of(s).c;
    for (int64_t r = 0; r < s.rows; ++r) std::fill_n(c + r * stride, s.columns, T(0));
  }
  return true;
}

dnn::Desc matrix(int64_t rows, int64_t columns, bool transposed, int64_t stride) {
  dnn::Desc desc;
  desc.dtype = DType::kFloat32;
  desc.dims = {rows, columns};
  if (transposed) {
    desc.strides = {1, stride};
  } else {
    desc.strides = {stride, 1};
  }
  return desc;
}

}  // namespace
}  // namespace gemm

Status Gemm::operator()(CpuDevice& device, const GemmShape& s, const float* a, const float* b,
                        float* c) {
  using namespace gemm;
  if (is_empty(s, c)) return Ok();
  const GemmStrides strides = strides_of(s);
  const int64_t flags =
      (s.a_transposed ? 1 : 0) + (s.b_transposed ? 2 : 0) + (s.accumulate ? 4 : 0);
  const int64_t key[] = {s.rows, s.columns, s.inner, flags, strides.a, strides.b, strides.c};
  MILLRACE_ASSIGN_OR_RETURN(
      const dnn::Primitive* const primitive, products_.get(key, [&]() -> StatusOr<dnn::Primitive> {
        dnn::Product product;
        product.src = matrix(s.rows, s.inner, s.a_transposed, strides.a);
        product.weights = matrix(s.inner, s.columns, s.b_transposed, strides.b);
        product.dst = matrix(s.rows, s.columns, /*transposed=*/false, strides.c);
        product.accumulate = s.accumulate;
        return dnn::product(device, product);
      }));
  return primitive->run(device,
                        {{dnn::Arg::kSrc, a}, {dnn::Arg::kWeights, b}, {dnn::Arg::kDst, c}});
}

Status Gemm::operator()(CpuDevice& /*device*/, const GemmShape& s, const double* a, const double* b,
                        double* c) {
  using namespace gemm;
  if (is_empty(s, c)) return Ok();
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Stride = Eigen::OuterStride<>;
  const GemmStrides strides = strides_of(s);
  const auto map = [](const double* data, int64_t rows, int64_t columns, int64_t stride) {
    return Eigen::Map<const Matrix, 0, Stride>(data, rows, columns, Stride(stride));
  };
  const auto left =
      s.a_transposed ? map(a, s.inner, s.rows, strides.a) : map(a, s.rows, s.inner, strides.a);
  const auto right = s.b_transposed ? map(b, s.columns, s.inner, strides.b)
                                    : map(b, s.inner, s.columns, strides.b);
  Eigen::Map<Matrix, 0, Stride> out(c, s.rows, s.columns, Stride(strides.c));
  if (!s.accumulate) out.setZero();
  if (s.a_transposed && s.b_transposed) {
    out.noalias() += left.transpose() * right.transpose();
  } else if (s.a_transposed) {
    out.noalias() += left.transpose() * right;
  } else if (s.b_transposed) {
    out.noalias() += left * right.transpose();
  } else {
    out.noalias() += left * right;
  }
  return Ok();
}

}  // namespace millrace::kernels
