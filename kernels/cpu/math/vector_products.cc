#include <algorithm>

#include "kernels/cpu/elementwise/binary.h"
#include "kernels/cpu/sums.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace vector_products {
namespace {

// Arguments of ops with two operands and of their gradients.
struct VectorProductsArgs {
  ArgIndex x;
  ArgIndex y;
  ArgIndex out;
  ArgIndex dout;
  ArgIndex dx;
  ArgIndex dy;
  explicit VectorProductsArgs(const KernelSetup& op)
      : x(op.input("X")),
        y(op.input("Y")),
        out(op.output("Out")),
        dout(op.input("Out@GRAD")),
        dx(op.output("X@GRAD")),
        dy(op.output("Y@GRAD")) {}

  struct Operands {
    const Tensor& x;
    const Tensor& y;
  };
  [[nodiscard]] Operands operands(const KernelContext& ctx) const { return {ctx.in(x), ctx.in(y)}; }

  // Errors: types differ; dims differ although they must be equal; the gradient has another size.
  [[nodiscard]] Status check(const KernelContext& ctx, bool same_dims, int64_t out_count) const {
    const Tensor& a = ctx.in(x);
    const Tensor& b = ctx.in(y);
    if (a.dtype() != b.dtype() || (same_dims && a.dims() != b.dims()))
      return ctx.error("X and Y must match, found {} and {}", describe(a), describe(b));
    if (!dout) return Ok();
    const Tensor& grad = ctx.in(dout);
    if (grad.dtype() != a.dtype() || grad.numel() != out_count) {
      return ctx.error("Out@GRAD must have {} elements of the type of X {}, found {}", out_count,
                       describe(a), describe(grad));
    }
    return Ok();
  }
};

// dot: dot product of rows of the last dim.

struct VectorProductsRows {
  int64_t count;
  int64_t width;
};
VectorProductsRows rows_of(const Tensor& x) {
  if (x.rank() == 0) return {1, 1};
  const int64_t width = x.dim(-1);
  int64_t count = 1;
  for (const int64_t dim : x.dims().drop_back()) count *= dim;
  return {count, width};
}

template <typename T>
T dot_of(const T* x, const T* y, int64_t count) {
  constexpr int64_t kPiece = 256;
  T products[kPiece];
  T total = 0;
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t length = std::min(kPiece, count - at);
    for (int64_t i = 0; i < length; ++i) products[i] = x[at + i] * y[at + i];
    total += sum_of(products, length);
  }
  return total;
}

StatusOr<Kernel> dot(const KernelSetup& op) {
  return Kernel([args = VectorProductsArgs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_RETURN_IF_ERROR(args.check(ctx, /*same_dims=*/true, 0));
    const Tensor& x = ctx.in(args.x);
    return dispatch<NumberTypes>(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const VectorProductsRows rows = rows_of(x);
      const T* const y = ctx.in(args.y).data<T>();
      T* const out = ctx.out(args.out).data<T>();
      for (int64_t r = 0; r < rows.count; ++r)
        out[r] = dot_of(x.data<T>() + r * rows.width, y + r * rows.width, rows.width);
      return Ok();
    });
  });
}

StatusOr<Kernel> dot_grad(const KernelSetup& op) {
  return Kernel([args = VectorProductsArgs(op)](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(args.x);
    const VectorProductsRows rows = rows_of(x);
    MILLRACE_RETURN_IF_ERROR(args.check(ctx, /*same_dims=*/true, rows.count));
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* const dout = ctx.in(args.dout).data<T>();
      const auto run = [&](ArgIndex arg, const T* other) {
        Tensor* const grad = ctx.find_out(arg);
        if (grad == nullptr) return;
        T* const to = grad->data<T>();
        for (int64_t r = 0; r < rows.count; ++r) {
          for (int64_t i = r * rows.width; i < (r + 1) * rows.width; ++i)
            to[i] = dout[r] * other[i];
        }
      };
      run(args.dx, ctx.in(args.y).data<T>());
      run(args.dy, x.data<T>());
      return Ok();
    });
  });
}

// Calls body(gradient of Out) with the type of the elements, which is one of Types.
template <typename Types, typename Body>
Status with_gradient(const KernelContext& ctx, const VectorProductsArgs& args, Body&& body) {
  return dispatch<Types>(ctx.in(args.x).dtype(), [&](auto tag) {
    body(ctx.in(args.dout).data<typename decltype(tag)::type>());
    return Ok();
  });
}

// cross: [outer, 3, inner].

constexpr int32_t kFirstOfSizeThree = 9;

struct Triples {
  int64_t outer = 1;
  int64_t inner = 1;
};

StatusOr<Triples> triples_of(const Tensor& x, int32_t dim) {
  const llvm::ArrayRef<int64_t> dims = x.dims();
  std::optional<int64_t> axis = ops::normalize_axis(dim, dims.size());
  if (dim == kFirstOfSizeThree) {
    const auto* const found = std::find(dims.begin(), dims.end(), 3);
    axis = found - dims.begin();
  }
  if (!axis || *axis >= static_cast<int64_t>(dims.size()) || dims[static_cast<size_t>(*axis)] != 3)
    return KernelContext::error("attribute 'dim' is {}, which is not a dim of size 3 of X {}", dim,
                                describe(x));
  Triples triples;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (static_cast<int64_t>(i) < *axis) triples.outer *= dims[i];
    if (static_cast<int64_t>(i) > *axis) triples.inner *= dims[i];
  }
  return triples;
}

template <typename T>
void cross_product(const Triples& triples, const T* x, const T* y, T* out) {
  const int64_t n = triples.inner;
  for (int64_t o = 0; o < triples.outer; ++o) {
    const int64_t at = o * 3 * n;
    for (int64_t k = 0; k < 3; ++k) {
      const int64_t a = at + (k + 1) % 3 * n;
      const int64_t b = at + (k + 2) % 3 * n;
      T* const to = out + at + k * n;
      for (int64_t i = 0; i < n; ++i) to[i] = x[a + i] * y[b + i] - x[b + i] * y[a + i];
    }
  }
}

struct CrossArgs : VectorProductsArgs {
  explicit CrossArgs(const KernelSetup& op)
      : VectorProductsArgs(op), dim(op.attr<int32_t>("dim")) {}

  // Checks the operands, and the gradient of Out if it must have `count` elements.
  [[nodiscard]] StatusOr<Triples> triples(const KernelContext& ctx, int64_t count) const {
    MILLRACE_RETURN_IF_ERROR(check(ctx, /*same_dims=*/true, count));
    return triples_of(ctx.in(x), dim);
  }

  int32_t dim;
};

StatusOr<Kernel> cross(const KernelSetup& op) {
  return Kernel([args = CrossArgs(op)](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(args.x);
    MILLRACE_ASSIGN_OR_RETURN(const Triples triples, args.triples(ctx, 0));
    return dispatch<NumberTypes>(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      cross_product(triples, x.data<T>(), ctx.in(args.y).data<T>(), ctx.out(args.out).data<T>());
      return Ok();
    });
  });
}

// dX = Y x dOut, dY = dOut x X.
StatusOr<Kernel> cross_grad(const KernelSetup& op) {
  return Kernel([args = CrossArgs(op)](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(args.x);
    MILLRACE_ASSIGN_OR_RETURN(const Triples triples, args.triples(ctx, x.numel()));
    return with_gradient<NumberTypes>(ctx, args, [&]<typename T>(const T* dout) {
      if (Tensor* const dx = ctx.find_out(args.dx))
        cross_product(triples, ctx.in(args.y).data<T>(), dout, dx->data<T>());
      if (Tensor* const dy = ctx.find_out(args.dy))
        cross_product(triples, dout, x.data<T>(), dy->data<T>());
    });
  });
}

// kron: each dim of the result is the product of a dim of X and a dim of Y.

struct VectorProductsProduct {
  template <typename T>
  static T value(T x, T y) {
    return x * y;
  }
  template <typename T>
  static T grad_x(T /*x*/, T y, T dout) {
    return dout * y;
  }
  template <typename T>
  static T grad_y(T x, T /*y*/, T dout) {
    return dout * x;
  }
};

BroadcastNest kron_nest(const Tensor& x, const Tensor& y) {
  const size_t rank = std::max(x.rank(), y.rank());
  const auto dim = [&](const Tensor& tensor, size_t i) {
    const size_t missing = rank - tensor.rank();
    return i < missing ? 1 : tensor.dims()[i - missing];
  };
  llvm::SmallVector<BroadcastNest::Level, 8> levels;  // innermost first
  int64_t of_x = 1;
  int64_t of_y = 1;
  int64_t of_out = 1;
  for (size_t i = rank; i-- > 0;) {
    const int64_t in_x = dim(x, i);
    const int64_t in_y = dim(y, i);
    levels.push_back({in_y, {0, of_y, of_out}});
    levels.push_back({in_x, {of_x, 0, of_out * in_y}});
    of_x *= in_x;
    of_y *= in_y;
    of_out *= in_x * in_y;
  }
  BroadcastNest nest;
  for (size_t i = levels.size(); i-- > 0;) nest.add(levels[i].size, levels[i].stride);
  return nest;
}

StatusOr<Kernel> kron(const KernelSetup& op) {
  return Kernel([args = VectorProductsArgs(op)](const KernelContext& ctx) -> Status {
    const auto& [x, y] = args.operands(ctx);
    MILLRACE_RETURN_IF_ERROR(args.check(ctx, /*same_dims=*/false, 0));
    return dispatch<NumberTypes>(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      run_binary(ctx.device(), kron_nest(x, y), kBinaryLoops<VectorProductsProduct, T>, x.data<T>(),
                 y.data<T>(), ctx.out(args.out).data<T>());
      return Ok();
    });
  });
}

StatusOr<Kernel> kron_grad(const KernelSetup& op) {
  return Kernel([args = VectorProductsArgs(op)](const KernelContext& ctx) -> Status {
    const auto& [x, y] = args.operands(ctx);
    MILLRACE_RETURN_IF_ERROR(args.check(ctx, /*same_dims=*/false, x.numel() * y.numel()));
    const BroadcastNest nest = kron_nest(x, y);
    return with_gradient<FloatTypes>(ctx, args, [&]<typename T>(const T* dout) {
      if (Tensor* const dx = ctx.find_out(args.dx)) {
        run_binary_grad(ctx.device(), nest, kBinaryGradLoops<VectorProductsProduct::grad_x<T>, T>,
                        kOfX, x.data<T>(), y.data<T>(), dout, dx->data<T>(), dx->numel());
      }
      if (Tensor* const dy = ctx.find_out(args.dy)) {
        run_binary_grad(ctx.device(), nest, kBinaryGradLoops<VectorProductsProduct::grad_y<T>, T>,
                        kOfY, x.data<T>(), y.data<T>(), dout, dy->data<T>(), dy->numel());
      }
    });
  });
}

}  // namespace
}  // namespace vector_products

/// cross, dot, kron with their gradients.
void add_math_vector_products(KernelRegistry& registry) {
  using namespace vector_products;
  registry.add("dot", dot);
  registry.add("dot_grad", dot_grad);
  registry.add("cross", cross);
  registry.add("cross_grad", cross_grad);
  registry.add("kron", kron);
  registry.add("kron_grad", kron_grad);
}

}  // namespace millrace::kernels
