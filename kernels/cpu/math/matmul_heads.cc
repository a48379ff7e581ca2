#include "kernels/cpu/math/matmul_heads.h"

#include <algorithm>
#include <memory>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "ops/math/matrix_dims.h"

// matmul with heads: head i multiplies columns [i * w, (i + 1) * w) of X with the same rows of Y
// or, if Y has only w rows, with the i-th range of its columns. The results are concatenated along
// the columns. Both tensors are matrices or batches of matrices; X or Y may be one matrix for the
// whole batch.
namespace millrace::kernels {
namespace matmul_heads_kernels {
namespace {

// A matrix in memory, or a range of its columns or rows.
struct MatmulHeadsPart {
  int64_t offset = 0;
  int64_t stride = 0;  ///< elements from row to row in memory
  bool transposed = false;
};

struct Heads {
  int64_t heads = 1;
  int64_t batch = 1;
  bool x_repeats = false;
  bool y_repeats = false;
  bool turn_x = false;
  bool turn_y = false;
  bool whole = false;  ///< heads have rows of Y, not columns
  int64_t rows = 0;
  int64_t inner = 0;    ///< of one head
  int64_t columns = 0;  ///< of one head's result
  int64_t y_rows = 0;
  int64_t y_columns = 0;

  [[nodiscard]] MatmulHeadsPart x(int64_t n, int64_t head) const {
    const int64_t width = inner * heads;
    const int64_t first = (x_repeats ? 0 : n) * rows * width;
    return turn_x ? MatmulHeadsPart{first + head * inner * rows, rows, true}
                  : MatmulHeadsPart{first + head * inner, width, false};
  }
  [[nodiscard]] MatmulHeadsPart y(int64_t n, int64_t head) const {
    const int64_t first = (y_repeats ? 0 : n) * y_rows * y_columns;
    const int64_t row = whole ? head * inner : 0;
    const int64_t column = whole ? 0 : head * columns;
    return turn_y ? MatmulHeadsPart{first + column * y_rows + row, y_rows, true}
                  : MatmulHeadsPart{first + row * y_columns + column, y_columns, false};
  }
  [[nodiscard]] MatmulHeadsPart out(int64_t n, int64_t head) const {
    const int64_t width = columns * heads;
    return {n * rows * width + head * columns, width, false};
  }
};

int64_t product(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

struct MatmulHeadsSetup {
  explicit MatmulHeadsSetup(const KernelSetup& op)
      : x(op.input("X")),
        y(op.input("Y")),
        turn_x(op.attr<bool>("transpose_X")),
        turn_y(op.attr<bool>("transpose_Y")),
        alpha(op.attr<float>("alpha")),
        heads(op.attr<int32_t>("head_number")) {}

  [[nodiscard]] StatusOr<Heads> of(const Tensor& a, const Tensor& b) const {
    const ops::MatrixDims left = ops::left_matrix(a.dims(), turn_x);
    const ops::MatrixDims right = ops::right_matrix(b.dims(), turn_y);
    Heads found;
    found.heads = heads;
    const int64_t of_x = product(left.batch);
    const int64_t of_y = product(right.batch);
    found.batch = std::max(of_x, of_y);
    found.x_repeats = of_x == 1 && of_y > 1;
    found.y_repeats = of_y == 1 && of_x > 1;
    found.turn_x = turn_x;
    found.turn_y = turn_y;
    found.whole = left.cols == right.rows;
    found.rows = left.rows;
    found.inner = left.cols / heads;
    found.columns = found.whole ? right.cols : right.cols / heads;
    found.y_rows = right.rows;
    found.y_columns = right.cols;
    const bool fits = left.cols % heads == 0 &&
                      (found.whole || (right.rows == found.inner && right.cols % heads == 0));
    const bool alike = of_x == of_y || found.x_repeats || found.y_repeats;
    if (fits && alike && a.dtype() == b.dtype()) return found;
    return KernelContext::error("{} heads of X {} and Y {} cannot be multiplied", heads,
                                describe(a), describe(b));
  }

  ArgIndex x;
  ArgIndex y;
  bool turn_x;
  bool turn_y;
  float alpha;
  int32_t heads;
};

// c = a x b for the given parts. c may also be stored transposed: then b' x a' is computed.
template <typename T>
Status multiply(Gemm& gemm, CpuDevice& device, GemmShape shape, const T* a, MatmulHeadsPart of_a,
                const T* b, MatmulHeadsPart of_b, T* c, MatmulHeadsPart of_c) {
  if (of_c.transposed) {
    std::swap(a, b);
    std::swap(of_a, of_b);
    std::swap(shape.rows, shape.columns);
    of_a.transposed = !of_a.transposed;
    of_b.transposed = !of_b.transposed;
  }
  shape.a_transposed = of_a.transposed;
  shape.b_transposed = of_b.transposed;
  shape.a_stride = of_a.stride;
  shape.b_stride = of_b.stride;
  shape.c_stride = of_c.stride;
  return gemm(device, shape, a + of_a.offset, b + of_b.offset, c + of_c.offset);
}

MatmulHeadsPart turned(MatmulHeadsPart part) {
  part.transposed = !part.transposed;
  return part;
}

template <typename T>
void scale_all(Tensor& tensor, float factor) {
  if (factor == 1) return;
  for (T& value : tensor.values<T>()) value *= static_cast<T>(factor);
}

}  // namespace
}  // namespace matmul_heads_kernels

StatusOr<Kernel> matmul_heads(const KernelSetup& op) {
  using namespace matmul_heads_kernels;
  return Kernel([setup = MatmulHeadsSetup(op), out_arg = op.output("Out"),
                 gemm = std::make_shared<Gemm>()](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(setup.x);
    const Tensor& y = ctx.in(setup.y);
    Tensor& out = ctx.out(out_arg);
    MILLRACE_ASSIGN_OR_RETURN(const Heads heads, setup.of(x, y));
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const GemmShape shape{heads.rows, heads.columns, heads.inner};
      for (int64_t n = 0; n < heads.batch; ++n) {
        for (int64_t h = 0; h < heads.heads; ++h) {
          MILLRACE_RETURN_IF_ERROR(multiply(*gemm, ctx.device(), shape, x.data<T>(), heads.x(n, h),
                                            y.data<T>(), heads.y(n, h), out.data<T>(),
                                            heads.out(n, h)));
        }
      }
      scale_all<T>(out, setup.alpha);
      return Ok();
    });
  });
}

StatusOr<Kernel> matmul_heads_grad(const KernelSetup& op) {
  using namespace matmul_heads_kernels;
  return Kernel([setup = MatmulHeadsSetup(op), dout_arg = op.input("Out@GRAD"),
                 dx_arg = op.output("X@GRAD"), dy_arg = op.output("Y@GRAD"),
                 for_x = std::make_shared<Gemm>(),
                 for_y = std::make_shared<Gemm>()](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(setup.x);
    const Tensor& y = ctx.in(setup.y);
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dout, needed(ctx, dout_arg, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const Heads heads, setup.of(x, y));
    if (dout->numel() != heads.batch * heads.rows * heads.columns * heads.heads ||
        dout->dtype() != x.dtype())
      return ctx.error("Out@GRAD {} does not fit X {} and Y {}", describe(*dout), describe(x),
                       describe(y));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, result_like(ctx, dx_arg, x));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dy, result_like(ctx, dy_arg, y));
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      for (int64_t n = 0; n < heads.batch; ++n) {
        for (int64_t h = 0; h < heads.heads; ++h) {
          const MatmulHeadsPart out = heads.out(n, h);
          if (dx != nullptr) {
            GemmShape shape{heads.rows, heads.inner, heads.columns};
            shape.accumulate = heads.x_repeats && n > 0;
            MILLRACE_RETURN_IF_ERROR(multiply(*for_x, ctx.device(), shape, dout->data<T>(), out,
                                              y.data<T>(), turned(heads.y(n, h)), dx->data<T>(),
                                              heads.x(n, h)));
          }
          if (dy == nullptr) continue;
          GemmShape shape{heads.inner, heads.columns, heads.rows};
          shape.accumulate = heads.y_repeats && n > 0;
          MILLRACE_RETURN_IF_ERROR(multiply(*for_y, ctx.device(), shape, x.data<T>(),
                                            turned(heads.x(n, h)), dout->data<T>(), out,
                                            dy->data<T>(), heads.y(n, h)));
        }
      }
      if (dx != nullptr) scale_all<T>(*dx, setup.alpha);
      if (dy != nullptr) scale_all<T>(*dy, setup.alpha);
      return Ok();
    });
  });
}

}  // namespace millrace::kernels
