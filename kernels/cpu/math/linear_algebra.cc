#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Inverses and triangular factors of small square matrices, processed one by one. All arithmetic is
// in double: an inverse loses digits, and f32 has few of them.
namespace millrace::kernels {
namespace {

using SquareMatrix = std::vector<double>;  // row-major

// out = a * b, each transposed if requested.
void multiply_squares(const SquareMatrix& a, bool a_transposed, const SquareMatrix& b,
                      bool b_transposed, size_t n, SquareMatrix& out) {
  out.assign(n * n, 0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < n; ++k) {
      const double left = a_transposed ? a[k * n + i] : a[i * n + k];
      for (size_t j = 0; j < n; ++j)
        out[i * n + j] += left * (b_transposed ? b[j * n + k] : b[k * n + j]);
    }
  }
}

// Gauss-Jordan elimination with the largest pivot of each column. False for a singular matrix.
bool invert(SquareMatrix& a, size_t n, SquareMatrix& out) {
  out.assign(n * n, 0);
  for (size_t i = 0; i < n; ++i) out[i * n + i] = 1;
  for (size_t c = 0; c < n; ++c) {
    size_t pivot = c;
    for (size_t r = c + 1; r < n; ++r) {
      if (std::abs(a[r * n + c]) > std::abs(a[pivot * n + c])) pivot = r;
    }
    if (!(std::abs(a[pivot * n + c]) > 0)) return false;
    for (size_t j = 0; j < n; ++j) {
      std::swap(a[c * n + j], a[pivot * n + j]);
      std::swap(out[c * n + j], out[pivot * n + j]);
    }
    const double scale = 1 / a[c * n + c];
    for (size_t j = 0; j < n; ++j) {
      a[c * n + j] *= scale;
      out[c * n + j] *= scale;
    }
    for (size_t r = 0; r < n; ++r) {
      const double factor = a[r * n + c];
      if (r == c || factor == 0) continue;
      for (size_t j = 0; j < n; ++j) {
        a[r * n + j] -= factor * a[c * n + j];
        out[r * n + j] -= factor * out[c * n + j];
      }
    }
  }
  return true;
}

// Replaces a by its lower triangular factor, reading the lower triangle only. False if a is not
// positive definite.
bool factorise(SquareMatrix& a, size_t n) {
  for (size_t j = 0; j < n; ++j) {
    double diagonal = a[j * n + j];
    for (size_t k = 0; k < j; ++k) diagonal -= a[j * n + k] * a[j * n + k];
    if (!(diagonal > 0)) return false;
    const double root = std::sqrt(diagonal);
    a[j * n + j] = root;
    for (size_t i = j + 1; i < n; ++i) {
      double sum = a[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      a[i * n + j] = sum / root;
    }
    for (size_t i = 0; i < j; ++i) a[i * n + j] = 0;
  }
  return true;
}

template <typename T>
void load_square(const T* from, size_t n, bool transposed, SquareMatrix& to) {
  to.resize(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j)
      to[i * n + j] = static_cast<double>(transposed ? from[j * n + i] : from[i * n + j]);
  }
}
template <typename T>
void store_square(const SquareMatrix& from, size_t n, bool transposed, T* to) {
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j)
      to[i * n + j] = static_cast<T>(transposed ? from[j * n + i] : from[i * n + j]);
  }
}

struct SquareStack {
  size_t size = 0;
  int64_t count = 0;
};
StatusOr<SquareStack> squares_of(const KernelContext& ctx, const Tensor& x, const char* slot) {
  if (x.rank() < 2 || x.dim(-1) != x.dim(-2))
    return ctx.error("{} must hold square matrices, found {}", slot, describe(x));
  const int64_t elements = x.dim(-1) * x.dim(-1);
  return SquareStack{static_cast<size_t>(x.dim(-1)), elements == 0 ? 0 : x.numel() / elements};
}

// Calls body(number, elements of x, elements of out) for each matrix of x.
template <typename Body>
Status each_square(const KernelContext& ctx, const Tensor& x, const char* slot, Tensor& out,
                   Body&& body) {
  MILLRACE_ASSIGN_OR_RETURN(const SquareStack stack, squares_of(ctx, x, slot));
  return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    const auto step = static_cast<int64_t>(stack.size * stack.size);
    for (int64_t i = 0; i < stack.count; ++i) {
      if (!body(stack.size, x.data<T>() + i * step, out.data<T>() + i * step, i * step))
        return ctx.error("matrix {} of {} {}", i, slot,
                         slot[0] == 'I' ? "is singular" : "is not positive definite");
    }
    return Ok();
  });
}

StatusOr<Kernel> inverse_kernel(const KernelSetup& op) {
  const ArgIndex x = op.input("Input");
  const ArgIndex out = op.output("Output");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, x, "Input"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, out, *from));
    SquareMatrix a;
    SquareMatrix b;
    return each_square(ctx, *from, "Input", *to,
                       [&](size_t n, const auto* in, auto* result, int64_t /*offset*/) {
                         load_square(in, n, /*transposed=*/false, a);
                         if (!invert(a, n, b)) return false;
                         store_square(b, n, /*transposed=*/false, result);
                         return true;
                       });
  });
}

Status check_like_square(const KernelContext& ctx, const Tensor& x, const Tensor& dx,
                         const char* slot) {
  if (dx.dtype() == x.dtype() && dx.dims() == x.dims()) return Ok();
  return ctx.error("{} must be {}, found {}", slot, describe(x), describe(dx));
}

// -Y^T dY Y^T for the inverse Y.
StatusOr<Kernel> inverse_grad(const KernelSetup& op) {
  const ArgIndex y = op.input("Output");
  const ArgIndex dy = op.input("Output@GRAD");
  const ArgIndex dx = op.output("Input@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!dx) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, y, "Output"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const grad, needed(ctx, dy, "Output@GRAD"));
    MILLRACE_RETURN_IF_ERROR(check_like_square(ctx, *from, *grad, "Output@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, dx, *from));
    SquareMatrix a;
    SquareMatrix b;
    SquareMatrix product;
    return each_square(
        ctx, *from, "Output", *to, [&](size_t n, const auto* in, auto* result, int64_t offset) {
          using T = std::remove_pointer_t<decltype(result)>;
          load_square(in, n, /*transposed=*/false, a);
          load_square(grad->data<T>() + offset, n, /*transposed=*/false, b);
          multiply_squares(a, /*a_transposed=*/true, b, /*b_transposed=*/false, n, product);
          multiply_squares(product, /*a_transposed=*/false, a, /*b_transposed=*/true, n, b);
          for (double& element : b) element = -element;
          store_square(b, n, /*transposed=*/false, result);
          return true;
        });
  });
}

StatusOr<Kernel> cholesky(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const bool upper = op.attr<bool>("upper");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, out, *from));
    SquareMatrix a;
    return each_square(ctx, *from, "X", *to,
                       [&](size_t n, const auto* in, auto* result, int64_t /*offset*/) {
                         load_square(in, n, upper, a);
                         if (!factorise(a, n)) return false;
                         store_square(a, n, upper, result);
                         return true;
                       });
  });
}

// L^-T F(L^T dL) L^-1 made symmetric, where F keeps the lower triangle and half of the diagonal.
StatusOr<Kernel> cholesky_grad(const KernelSetup& op) {
  const ArgIndex y = op.input("Out");
  const ArgIndex dy = op.input("Out@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  const bool upper = op.attr<bool>("upper");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!dx) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, y, "Out"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const grad, needed(ctx, dy, "Out@GRAD"));
    MILLRACE_RETURN_IF_ERROR(check_like_square(ctx, *from, *grad, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, dx, *from));
    SquareMatrix a;
    SquareMatrix b;
    SquareMatrix c;
    return each_square(
        ctx, *from, "Out", *to, [&](size_t n, const auto* in, auto* result, int64_t offset) {
          using T = std::remove_pointer_t<decltype(result)>;
          load_square(in, n, upper, a);
          load_square(grad->data<T>() + offset, n, upper, b);
          multiply_squares(a, /*a_transposed=*/true, b, /*b_transposed=*/false, n, c);
          for (size_t i = 0; i < n; ++i) {
            c[i * n + i] /= 2;
            for (size_t j = i + 1; j < n; ++j) c[i * n + j] = 0;
          }
          SquareMatrix factor = a;
          if (!invert(factor, n, b)) return false;
          multiply_squares(b, /*a_transposed=*/true, c, /*b_transposed=*/false, n, a);
          multiply_squares(a, /*a_transposed=*/false, b, /*b_transposed=*/false, n, c);
          for (size_t i = 0; i < n; ++i) {
            for (size_t j = 0; j < n; ++j) a[i * n + j] = (c[i * n + j] + c[j * n + i]) / 2;
          }
          store_square(a, n, /*transposed=*/false, result);
          return true;
        });
  });
}

}  // namespace

/// inverse, cholesky with their gradients.
void add_math_linear_algebra(KernelRegistry& registry) {
  registry.add("inverse", inverse_kernel);
  registry.add("inverse_grad", inverse_grad);
  registry.add("cholesky", cholesky);
  registry.add("cholesky_grad", cholesky_grad);
}

}  // namespace millrace::kernels
