#include <algorithm>
#include <array>

#include "kernels/cpu/math/matmul_heads.h"
#include "kernels/cpu/matrix_product.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"
#include "ops/math/matrix_dims.h"

namespace millrace::kernels {
namespace matmul_kernels {
namespace {

using ops::MatrixDims;

// What differs between the ops of this file.
struct MatmulRule {
  const char* transpose_x = nullptr;  // attribute, if there is one
  const char* transpose_y = nullptr;
  bool turns_vectors = false;  // whether the attributes apply to vectors
};
constexpr MatmulRule kMatmul = {"transpose_X", "transpose_Y", true};
constexpr MatmulRule kMatmulV2 = {"trans_x", "trans_y", false};
constexpr MatmulRule kBmm = {};

enum Operand : size_t { kX = 0, kY = 1, kOut = 2 };

// Two tensors viewed as batches of matrices.
struct MatmulPair {
  bool turn_x = false;
  bool turn_y = false;
  int64_t rows = 1;
  int64_t inner = 1;
  int64_t columns = 1;
  struct Level {
    int64_t size;
    std::array<int64_t, 3> stride;  // in elements, by operand
  };
  llvm::SmallVector<Level, 4> batch;

  // The product c = a x b with the given operands in these roles.
  [[nodiscard]] ProductShape product(Operand a, Operand b, Operand c) const {
    ProductShape shape;
    for (const Level& level : batch)
      shape.batch.add(level.size, {level.stride[a], level.stride[b], level.stride[c]});
    return shape;
  }
  [[nodiscard]] int64_t out_elements() const {
    int64_t count = rows * columns;
    for (const Level& level : batch) count *= level.size;
    return count;
  }
};

int64_t batch_dim(const Dims& batch, size_t at, size_t rank) {
  return at < rank - batch.size() ? 1 : batch[at - (rank - batch.size())];
}

StatusOr<MatmulPair> pair_of(const Tensor& x, const Tensor& y, bool transpose_x, bool transpose_y) {
  const MatrixDims a = ops::left_matrix(x.dims(), transpose_x);
  const MatrixDims b = ops::right_matrix(y.dims(), transpose_y);
  const auto mismatch = [&] {
    return KernelContext::error("X {} and Y {} cannot be multiplied", ops::dims_text(x.dims()),
                                ops::dims_text(y.dims()));
  };
  if (a.cols != b.rows || x.dtype() != y.dtype()) return mismatch();
  MatmulPair pair{transpose_x, transpose_y, a.rows, a.cols, b.cols, {}};
  const size_t rank = std::max(a.batch.size(), b.batch.size());
  pair.batch.resize(rank);
  std::array<int64_t, 3> stride = {a.rows * a.cols, b.rows * b.cols, a.rows * b.cols};
  for (size_t i = rank; i-- > 0;) {
    const int64_t of_x = batch_dim(a.batch, i, rank);
    const int64_t of_y = batch_dim(b.batch, i, rank);
    if (of_x != of_y && of_x != 1 && of_y != 1) return mismatch();
    const int64_t size = of_x == 1 ? of_y : of_x;
    pair.batch[i] = {size, {of_x == 1 ? 0 : stride[kX], of_y == 1 ? 0 : stride[kY], stride[kOut]}};
    stride = {stride[kX] * of_x, stride[kY] * of_y, stride[kOut] * size};
  }
  return pair;
}

ProductShape forward_shape(const MatmulPair& pair) {
  ProductShape shape = pair.product(kX, kY, kOut);
  shape.rows = pair.rows;
  shape.inner = pair.inner;
  shape.columns = pair.columns;
  shape.transpose_a = pair.turn_x;
  shape.transpose_b = pair.turn_y;
  return shape;
}

// dX = dOut x Y', or its transpose Y x dOut' if X is stored transposed.
ProductShape x_grad_shape(const MatmulPair& pair) {
  ProductShape shape = pair.turn_x ? pair.product(kY, kOut, kX) : pair.product(kOut, kY, kX);
  shape.inner = pair.columns;
  shape.rows = pair.turn_x ? pair.inner : pair.rows;
  shape.columns = pair.turn_x ? pair.rows : pair.inner;
  shape.transpose_a = pair.turn_x && pair.turn_y;
  shape.transpose_b = pair.turn_x || !pair.turn_y;
  return shape;
}

// dY = X' x dOut, or its transpose dOut' x X if Y is stored transposed.
ProductShape y_grad_shape(const MatmulPair& pair) {
  ProductShape shape = pair.turn_y ? pair.product(kOut, kX, kY) : pair.product(kX, kOut, kY);
  shape.inner = pair.rows;
  shape.rows = pair.turn_y ? pair.columns : pair.inner;
  shape.columns = pair.turn_y ? pair.inner : pair.columns;
  shape.transpose_a = pair.turn_y || !pair.turn_x;
  shape.transpose_b = pair.turn_y && pair.turn_x;
  return shape;
}

// Arguments of the op that the forward and the gradient kernel both use.
struct MatmulSetup {
  ArgIndex x;
  ArgIndex y;
  bool turn_x = false;
  bool turn_y = false;
  bool turns_vectors = false;
  float alpha = 1.0F;

  [[nodiscard]] StatusOr<MatmulPair> pair(const KernelContext& ctx) const {
    const Tensor& a = ctx.in(x);
    const Tensor& b = ctx.in(y);
    return pair_of(a, b, turn_x && (turns_vectors || a.rank() > 1),
                   turn_y && (turns_vectors || b.rank() > 1));
  }
};

StatusOr<MatmulSetup> read(const KernelSetup& op, const MatmulRule& rule) {
  MatmulSetup setup{op.input("X"), op.input("Y"), false, false, rule.turns_vectors, 1.0F};
  if (rule.transpose_x != nullptr) setup.turn_x = op.attr<bool>(rule.transpose_x);
  if (rule.transpose_y != nullptr) setup.turn_y = op.attr<bool>(rule.transpose_y);
  if (op.def().find_attr("alpha") != nullptr) setup.alpha = op.attr<float>("alpha");
  return setup;
}

bool has_heads(const KernelSetup& op) {
  return op.def().find_attr("head_number") != nullptr && op.attr<int32_t>("head_number") > 1;
}

template <const MatmulRule& kRule>
StatusOr<Kernel> forward(const KernelSetup& op) {
  if (has_heads(op)) return matmul_heads(op);
  MILLRACE_ASSIGN_OR_RETURN(const MatmulSetup setup, read(op, kRule));
  return Kernel(
      [setup, out_arg = op.output("Out"),
       product = MatrixProduct(setup.alpha, wants_bf16(op))](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const MatmulPair pair, setup.pair(ctx));
        const Tensor& x = ctx.in(setup.x);
        return product.run(ctx.device(), x.dtype(), forward_shape(pair), x.raw(),
                           ctx.in(setup.y).raw(), ctx.out(out_arg).raw());
      });
}

template <const MatmulRule& kRule>
StatusOr<Kernel> backward(const KernelSetup& op) {
  if (has_heads(op)) return matmul_heads_grad(op);
  MILLRACE_ASSIGN_OR_RETURN(const MatmulSetup setup, read(op, kRule));
  return Kernel(
      [setup, dout_arg = op.input("Out@GRAD"), dx_arg = op.output("X@GRAD"),
       dy_arg = op.output("Y@GRAD"), for_x = MatrixProduct(setup.alpha, wants_bf16(op)),
       for_y = MatrixProduct(setup.alpha, wants_bf16(op))](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const MatmulPair pair, setup.pair(ctx));
        const Tensor& x = ctx.in(setup.x);
        const Tensor& y = ctx.in(setup.y);
        const Tensor& dout = ctx.in(dout_arg);
        if (dout.numel() != pair.out_elements() || dout.dtype() != x.dtype()) {
          return ctx.error("Out@GRAD must have {} elements of the type of X {}, found {}",
                           pair.out_elements(), describe(x), describe(dout));
        }
        if (Tensor* const dx = ctx.find_out(dx_arg)) {
          const std::byte* a = dout.raw();
          const std::byte* b = y.raw();
          if (pair.turn_x) std::swap(a, b);
          MILLRACE_RETURN_IF_ERROR(
              for_x.run(ctx.device(), x.dtype(), x_grad_shape(pair), a, b, dx->raw()));
        }
        if (Tensor* const dy = ctx.find_out(dy_arg)) {
          const std::byte* a = x.raw();
          const std::byte* b = dout.raw();
          if (pair.turn_y) std::swap(a, b);
          MILLRACE_RETURN_IF_ERROR(
              for_y.run(ctx.device(), x.dtype(), y_grad_shape(pair), a, b, dy->raw()));
        }
        return Ok();
      });
}

}  // namespace
}  // namespace matmul_kernels

/// matmul, matmul_v2, bmm with their gradients.
void add_math_matmul(KernelRegistry& registry) {
  using namespace matmul_kernels;
  registry.add("matmul", forward<kMatmul>);
  registry.add("matmul_grad", backward<kMatmul>);
  registry.add("matmul_v2", forward<kMatmulV2>);
  registry.add("matmul_v2_grad", backward<kMatmulV2>);
  registry.add("bmm", forward<kBmm>);
  registry.add("bmm_grad", backward<kBmm>);
}

}  // namespace millrace::kernels
