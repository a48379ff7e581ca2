#include <algorithm>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

namespace millrace::kernels {
namespace diagonal_kernels {
namespace {

template <typename T>
T value_as(double value) {
  return static_cast<T>(static_cast<Compute<T>>(value));
}

// The elements of a diagonal in a row-major matrix: first one, distance, number.
struct Diagonal {
  int64_t first = 0;
  int64_t step = 0;
  int64_t count = 0;

  Diagonal(int64_t rows, int64_t columns, int64_t offset) {
    first = offset >= 0 ? offset : -offset * columns;
    step = columns + 1;
    const int64_t down = rows + std::min<int64_t>(offset, 0);
    const int64_t right = columns - std::max<int64_t>(offset, 0);
    count = std::max<int64_t>(0, std::min(down, right));
  }
};

template <typename T>
void vector_to_matrix(const T* vector, int64_t length, int64_t offset, T padding, Tensor& out) {
  std::fill_n(out.data<T>(), out.numel(), padding);
  const Diagonal d(out.dims()[0], out.dims()[1], offset);
  for (int64_t i = 0; i < std::min(length, d.count); ++i)
    out.data<T>()[d.first + i * d.step] = vector[i];
}

StatusOr<Kernel> make_diag(const KernelSetup& op, llvm::StringRef slot, int64_t offset,
                           double padding) {
  const ArgIndex x_arg = op.input(slot);
  const ArgIndex out_arg = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    Tensor& out = ctx.out(out_arg);
    return dispatch<AllTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      if (x.rank() < 2) {
        vector_to_matrix(x.data<T>(), x.numel(), offset, value_as<T>(padding), out);
        return Ok();
      }
      const Diagonal d(x.dims()[0], x.dims()[1], offset);
      if (out.numel() != d.count)
        return ctx.error("Out {} must have the {} elements of the diagonal", describe(out),
                         d.count);
      for (int64_t i = 0; i < d.count; ++i) out.data<T>()[i] = x.data<T>()[d.first + i * d.step];
      return Ok();
    });
  });
}

StatusOr<Kernel> diag(const KernelSetup& op) {
  return make_diag(op, "Diagonal", 0, 0);
}
StatusOr<Kernel> diag_v2(const KernelSetup& op) {
  return make_diag(op, "X", op.attr<int64_t>("offset"), op.attr<float>("padding_value"));
}

StatusOr<Kernel> diag_v2_grad(const KernelSetup& op) {
  const GradientArgs gradient(op);
  const auto offset = op.attr<int64_t>("offset");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const GradientTensors g = gradient.find(ctx, StartsAs::kUnset);
    if (!g) return Ok();
    const bool spread = g.to->rank() < 2;  // the forward op created a matrix
    const Tensor& matrix = spread ? *g.from : *g.to;
    const Tensor& vector = spread ? *g.to : *g.from;
    if (matrix.rank() != 2 || matrix.dtype() != vector.dtype())
      return ctx.error("Out@GRAD {} does not fit X {}", describe(*g.from), describe(*g.to));
    const Diagonal d(matrix.dims()[0], matrix.dims()[1], offset);
    if (vector.numel() != d.count)
      return ctx.error("Out@GRAD {} does not fit X {}", describe(*g.from), describe(*g.to));
    return dispatch<AllTypes>(g.to->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const T* const from = g.from->data<T>();
      T* const dx = g.to->data<T>();
      if (spread) {
        for (int64_t i = 0; i < d.count; ++i) dx[i] = from[d.first + i * d.step];
      } else {
        std::fill_n(dx, g.to->numel(), T{});
        for (int64_t i = 0; i < d.count; ++i) dx[d.first + i * d.step] = from[i];
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> eye(const KernelSetup& op) {
  const ArgIndex out_arg = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    Tensor& out = ctx.out(out_arg);
    const Diagonal d(out.dims()[0], out.dims()[1], 0);
    return dispatch<AllTypes>(out.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      std::fill_n(out.data<T>(), out.numel(), T{});
      for (int64_t i = 0; i < d.count; ++i) out.data<T>()[i * d.step] = value_as<T>(1);
      return Ok();
    });
  });
}

// Fills the diagonal of a matrix, or of a cube whose dims are all equal. With wrapping, the
// diagonal of a tall matrix starts again one row below each square block of rows.
template <typename T>
void set_diagonal_op(llvm::ArrayRef<int64_t> dims, int64_t offset, bool wrap, T value, T* out) {
  int64_t step = 1;
  for (size_t i = dims.size() - 1; i-- > 0;) step = step * dims[i + 1] + 1;
  const int64_t columns = dims[1];
  const int64_t count = ops::dims_product(dims);
  const int64_t size = wrap || dims.size() > 2 ? count : std::min(count, columns * columns);
  for (int64_t i = 0; i < size; i += step) {
    const int64_t column = i % columns + offset;
    if (column >= 0 && column < columns) out[i + offset] = value;
  }
}

StatusOr<Kernel> make_fill(const KernelSetup& op, llvm::StringRef in, llvm::StringRef out,
                           double value) {
  const GradientArgs args = GradientArgs::named(op, in, out);
  const auto offset = op.attr<int64_t>("offset");
  const bool wrap = op.attr<bool>("wrap");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const GradientTensors g = args.find(ctx, StartsAs::kUnset);
    if (!g) return Ok();
    const auto dims = g.from->dims();
    const bool cube =
        std::all_of(dims.begin(), dims.end(), [&](int64_t d) { return d == dims[0]; });
    if (dims.size() < 2 || (dims.size() > 2 && !cube))
      return ctx.error("X must be a matrix or have equal dims, found {}", describe(*g.from));
    copy_bytes(ctx.device(), g.to->raw(), g.from->raw(), g.from->bytes());
    if (g.from->numel() == 0) return Ok();
    return dispatch<AllTypes>(g.to->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      set_diagonal_op(dims, offset, wrap, value_as<T>(value), g.to->data<T>());
      return Ok();
    });
  });
}

StatusOr<Kernel> fill_diagonal(const KernelSetup& op) {
  return make_fill(op, "X", "Out", op.attr<float>("value"));
}
StatusOr<Kernel> fill_diagonal_grad(const KernelSetup& op) {
  return make_fill(op, "Out@GRAD", "X@GRAD", 0);
}

// Keeps a triangle of every matrix; the gradient is the same operation.
StatusOr<Kernel> make_triangle(const KernelSetup& op, llvm::StringRef in, llvm::StringRef out) {
  const GradientArgs args = GradientArgs::named(op, in, out);
  const auto diagonal = op.attr<int64_t>("diagonal");
  const bool lower = op.attr<bool>("lower");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const GradientTensors g = args.find(ctx, StartsAs::kUnset);
    if (!g) return Ok();
    if (g.from->rank() < 2)
      return ctx.error("X must have at least two dims, found {}", describe(*g.from));
    const int64_t rows = g.from->dim(-2);
    const int64_t columns = g.from->dim(-1);
    return dispatch<AllTypes>(g.from->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const T* from = g.from->data<T>();
      T* target = g.to->data<T>();
      const int64_t all_rows = columns == 0 ? 0 : g.from->numel() / columns;
      for (int64_t r = 0; r < all_rows; ++r, from += columns, target += columns) {
        // columns left of the boundary belong to the lower triangle
        const int64_t split =
            std::clamp<int64_t>(r % rows + diagonal + (lower ? 1 : 0), 0, columns);
        for (int64_t c = 0; c < split; ++c) target[c] = lower ? from[c] : T{};
        for (int64_t c = split; c < columns; ++c) target[c] = lower ? T{} : from[c];
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> tril_triu(const KernelSetup& op) {
  return make_triangle(op, "X", "Out");
}
StatusOr<Kernel> tril_triu_grad(const KernelSetup& op) {
  return make_triangle(op, "Out@GRAD", "X@GRAD");
}

}  // namespace
}  // namespace diagonal_kernels

void add_tensor_diagonal(KernelRegistry& registry) {
  using namespace diagonal_kernels;
  registry.add("diag", diag);
  registry.add("diag_v2", diag_v2);
  registry.add("diag_v2_grad", diag_v2_grad);
  registry.add("eye", eye);
  registry.add("fill_diagonal", fill_diagonal);
  registry.add("fill_diagonal_grad", fill_diagonal_grad);
  registry.add("tril_triu", tril_triu);
  registry.add("tril_triu_grad", tril_triu_grad);
}

}  // namespace millrace::kernels
