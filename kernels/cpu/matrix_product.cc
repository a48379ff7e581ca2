#include "kernels/cpu/matrix_product.h"

#include <algorithm>
#include <cstring>

#include <Eigen/Core>
#include <fmt/format.h>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/onednn.h"

namespace millrace::kernels {
namespace {

constexpr size_t kA = ProductShape::kA;
constexpr size_t kB = ProductShape::kB;
constexpr size_t kC = ProductShape::kC;

// Drops the innermost level of the batch where possible: a batch of stacked rows is one larger
// matrix, and so is a stack along the inner dim whose products are added up.
void fold_run(ProductShape& shape) {
  if (shape.batch.levels().empty()) return;
  const auto& run = shape.batch.levels().back();
  const bool a = run.stride[kA] != 0;
  const bool b = run.stride[kB] != 0;
  const bool c = run.stride[kC] != 0;
  if (a && !b && c && !shape.transpose_a) {
    shape.rows *= run.size;
  } else if (a && b && !c && shape.transpose_a && !shape.transpose_b) {
    shape.inner *= run.size;
  } else {
    return;
  }
  shape.batch = shape.batch.without_run();
}

// One operand: count matrices at equal distances; a single matrix if it repeats.
dnn::Desc describe(DType dtype, int64_t count, int64_t distance, int64_t rows, int64_t columns,
                   bool transposed) {
  dnn::Desc desc{dtype, {rows, columns}, {columns, 1}};
  if (transposed) desc.strides = {1, rows};
  if (count == 1) return desc;
  desc.dims.insert(desc.dims.begin(), distance == 0 ? 1 : count);
  desc.strides.insert(desc.strides.begin(), distance == 0 ? rows * columns : distance);
  return desc;
}

template <typename T>
void eigen_product(const ProductShape& shape, T alpha, const T* a, const T* b, T* c) {
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using View = Eigen::Map<const Matrix>;
  using Target = Eigen::Map<Matrix>;
  const View left(a, shape.transpose_a ? shape.inner : shape.rows,
                  shape.transpose_a ? shape.rows : shape.inner);
  const View right(b, shape.transpose_b ? shape.columns : shape.inner,
                   shape.transpose_b ? shape.inner : shape.columns);
  Target to(c, shape.rows, shape.columns);
  if (shape.transpose_a && shape.transpose_b) {
    to.noalias() += alpha * (left.transpose() * right.transpose());
  } else if (shape.transpose_a) {
    to.noalias() += alpha * (left.transpose() * right);
  } else if (shape.transpose_b) {
    to.noalias() += alpha * (left * right.transpose());
  } else {
    to.noalias() += alpha * (left * right);
  }
}

// Number of elements of an operand over the whole batch.
int64_t size_of(const ProductShape& shape, size_t operand) {
  int64_t matrices = 1;
  for (const auto& level : shape.batch.levels()) {
    if (level.stride[operand] != 0) matrices *= level.size;
  }
  if (operand == kA) return matrices * shape.rows * shape.inner;
  if (operand == kB) return matrices * shape.inner * shape.columns;
  return matrices * shape.rows * shape.columns;
}

}  // namespace

struct MatrixProduct::State {
  float alpha;
  bool bf16;
  dnn::ShapeCache<dnn::Primitive> primitives;

  /// For count matrices at equal distances.
  StatusOr<dnn::Primitive*> primitive(CpuDevice& device, DType dtype, const ProductShape& shape,
                                      int64_t count, const Nest<3>::Offsets& distance,
                                      bool accumulate);
  Status run_native(CpuDevice& device, DType dtype, const ProductShape& shape, const std::byte* a,
                    const std::byte* b, std::byte* c, bool accumulate);
  void run_double(const ProductShape& shape, const double* a, const double* b, double* c,
                  bool accumulate) const;
  Status run_as_float(CpuDevice& device, DType dtype, const ProductShape& shape, const std::byte* a,
                      const std::byte* b, std::byte* c, bool accumulate);
};

StatusOr<dnn::Primitive*> MatrixProduct::State::primitive(CpuDevice& device, DType dtype,
                                                          const ProductShape& shape, int64_t count,
                                                          const Nest<3>::Offsets& distance,
                                                          bool accumulate) {
  const int64_t flags =
      (shape.transpose_a ? 1 : 0) | (shape.transpose_b ? 2 : 0) | (accumulate ? 4 : 0);
  const int64_t key[] = {static_cast<int64_t>(dtype),
                         shape.rows,
                         shape.inner,
                         shape.columns,
                         count,
                         distance[kA],
                         distance[kB],
                         flags};
  return primitives.get(key, [&] {
    dnn::Product spec;
    spec.src = describe(dtype, count, distance[kA], shape.rows, shape.inner, shape.transpose_a);
    spec.weights =
        describe(dtype, count, distance[kB], shape.inner, shape.columns, shape.transpose_b);
    spec.dst =
        describe(dtype, count, distance[kC], shape.rows, shape.columns, /*transposed=*/false);
    spec.alpha = alpha;
    spec.accumulate = accumulate;
    spec.bf16_factors = bf16 && dtype == DType::kFloat32;
    StatusOr<dnn::Primitive> made = dnn::product(device, spec);
    if (made.ok() || !spec.bf16_factors) return made;
    spec.bf16_factors = false;
    return dnn::product(device, spec);
  });
}

Status MatrixProduct::State::run_native(CpuDevice& device, DType dtype, const ProductShape& shape,
                                        const std::byte* a, const std::byte* b, std::byte* c,
                                        bool accumulate) {
  const auto element = static_cast<int64_t>(dtype_size(dtype));
  Nest<3>::Offsets distance{};
  int64_t count = 1;
  if (!shape.batch.levels().empty()) {
    distance = shape.batch.levels().back().stride;
    count = shape.batch.levels().back().size;
  }
  // Products that are added to the same result run one by one.
  const int64_t steps = distance[kC] == 0 ? count : 1;
  MILLRACE_ASSIGN_OR_RETURN(
      const dnn::Primitive* const primitive,
      this->primitive(device, dtype, shape, count / steps, distance, accumulate));
  Status status;
  shape.batch.each_run([&](const Nest<3>::Offsets& at, int64_t /*count*/) {
    for (int64_t i = 0; i < steps && status.ok(); ++i) {
      status =
          primitive->run(device, {{dnn::Arg::kSrc, a + (at[kA] + i * distance[kA]) * element},
                                  {dnn::Arg::kWeights, b + (at[kB] + i * distance[kB]) * element},
                                  {dnn::Arg::kDst, c + at[kC] * element}});
    }
  });
  return status;
}

void MatrixProduct::State::run_double(const ProductShape& shape, const double* a, const double* b,
                                      double* c, bool accumulate) const {
  if (!accumulate) std::fill_n(c, size_of(shape, kC), 0.0);
  Nest<3>::Offsets distance{};
  if (!shape.batch.levels().empty()) distance = shape.batch.run_stride();
  shape.batch.each_run([&](const Nest<3>::Offsets& at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      eigen_product<double>(shape, alpha, a + at[kA] + i * distance[kA],
                            b + at[kB] + i * distance[kB], c + at[kC] + i * distance[kC]);
    }
  });
}

Status MatrixProduct::State::run_as_float(CpuDevice& device, DType dtype, const ProductShape& shape,
                                          const std::byte* a, const std::byte* b, std::byte* c,
                                          bool accumulate) {
  const auto load = [&](const std::byte* from, size_t operand) -> StatusOr<std::byte*> {
    const int64_t size = size_of(shape, operand);
    const auto bytes = static_cast<size_t>(size) * sizeof(float);
    MILLRACE_ASSIGN_OR_RETURN(std::byte* const to,
                              device.scratch(bytes, static_cast<int>(operand)));
    if (operand != kC || accumulate)
      MILLRACE_RETURN_IF_ERROR(convert(dtype, from, DType::kFloat32, to, size));
    return to;
  };
  MILLRACE_ASSIGN_OR_RETURN(const std::byte* const wide_a, load(a, kA));
  MILLRACE_ASSIGN_OR_RETURN(const std::byte* const wide_b, load(b, kB));
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const wide_c, load(c, kC));
  MILLRACE_RETURN_IF_ERROR(
      run_native(device, DType::kFloat32, shape, wide_a, wide_b, wide_c, accumulate));
  return convert(DType::kFloat32, wide_c, dtype, c, size_of(shape, kC));
}

MatrixProduct::MatrixProduct(float alpha, bool bf16) : state_(std::make_shared<State>()) {
  state_->alpha = alpha;
  state_->bf16 = bf16;
}

bool wants_bf16(const KernelSetup& op) {
  return get_attr_or<std::string>(op.op(), "mkldnn_data_type", "") == "bfloat16";
}

Status MatrixProduct::run(CpuDevice& device, DType dtype, const ProductShape& original,
                          const std::byte* a, const std::byte* b, std::byte* c,
                          bool accumulate) const {
  ProductShape shape = original;
  fold_run(shape);
  const int64_t size = size_of(shape, kC);
  const auto levels = shape.batch.levels();
  const bool adds_up = std::any_of(levels.begin(), levels.end(),
                                   [](const auto& level) { return level.stride[kC] == 0; });
  const bool empty = shape.inner == 0 || shape.batch.count() == 0;
  if (!accumulate && (empty || adds_up) && size > 0) {
    std::memset(c, 0, static_cast<size_t>(size * dtype_size(dtype)));
    accumulate = true;
  }
  if (empty || size == 0) return Ok();
  switch (dtype) {
    case DType::kFloat32:
      return state_->run_native(device, dtype, shape, a, b, c, accumulate);
    case DType::kFloat64:
      state_->run_double(shape, reinterpret_cast<const double*>(a),
                         reinterpret_cast<const double*>(b), reinterpret_cast<double*>(c),
                         accumulate);
      return Ok();
    case DType::kBfloat16:
      // Sums of many products are accumulated in float.
      if (!adds_up) {
        Status status = state_->run_native(device, dtype, shape, a, b, c, accumulate);
        if (status.code() != StatusCode::kUnimplemented) return status;
      }
      return state_->run_as_float(device, dtype, shape, a, b, c, accumulate);
    case DType::kFloat16:
      return state_->run_as_float(device, dtype, shape, a, b, c, accumulate);
    default:
      return {StatusCode::kUnimplemented,
              fmt::format("no matrix product for element type {}", dtype_name(dtype))};
  }
}

}  // namespace millrace::kernels
