#include <cmath>

#include "kernels/cpu/sums.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace cos_sim_kernels {
namespace {

// Row-wise cosine of X and Y; Y may have a single row, which is used for all rows of X.
struct CosSimRows {
  int64_t count;
  int64_t width;
  int64_t y_step;  // elements from one row of Y to the next; 0 if there is one
};

StatusOr<CosSimRows> rows_of(const Tensor& x, const Tensor& y) {
  const bool ranked = x.rank() > 0 && y.rank() > 0;
  const int64_t count = ranked ? x.dim(0) : 0;
  const int64_t of_y = ranked ? y.dim(0) : 0;
  const int64_t width = count == 0 ? 0 : x.numel() / count;
  if (!ranked || (of_y != 1 && of_y != count) || x.dtype() != y.dtype() ||
      (count > 0 && y.numel() != of_y * width))
    return KernelContext::error("Y must have the rows of X or one, found {} and {}", describe(x),
                                describe(y));
  return CosSimRows{count, width, of_y == 1 ? 0 : width};
}

template <typename T>
double dot(const T* x, const T* y, int64_t count) {
  double lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t k = 0; k < 8; ++k)
      lanes[k] += static_cast<double>(x[i + k]) * static_cast<double>(y[i + k]);
  }
  for (int64_t k = 0; i < count; ++i, ++k)
    lanes[k] += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return sum_of(lanes, 8);
}

// Calls body(row, elements of X, elements of Y) for all rows.
template <typename T, typename Body>
void for_rows_of(const CosSimRows& rows, const Tensor& x, const Tensor& y, Body&& body) {
  for (int64_t r = 0; r < rows.count; ++r)
    body(r, x.data<T>() + r * rows.width, y.data<T>() + r * rows.y_step);
}

StatusOr<Kernel> cos_sim(const KernelSetup& op) {
  return Kernel([x_arg = op.input("X"), y_arg = op.input("Y"), out_arg = op.output("Out"),
                 x_norm_arg = op.output("XNorm"),
                 y_norm_arg = op.output("YNorm")](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    const Tensor& y = ctx.in(y_arg);
    MILLRACE_ASSIGN_OR_RETURN(const CosSimRows rows, rows_of(x, y));
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* const out = ctx.out(out_arg).data<T>();
      Tensor* const x_norm = ctx.find_out(x_norm_arg);
      Tensor* const y_norm = ctx.find_out(y_norm_arg);
      for_rows_of<T>(rows, x, y, [&](int64_t r, const T* a, const T* b) {
        const double of_x = std::sqrt(dot(a, a, rows.width));
        const double of_y = std::sqrt(dot(b, b, rows.width));
        out[r] = static_cast<T>(dot(a, b, rows.width) / of_x / of_y);
        if (x_norm != nullptr) x_norm->data<T>()[r] = static_cast<T>(of_x);
        if (y_norm != nullptr) y_norm->data<T>()[rows.y_step == 0 ? 0 : r] = static_cast<T>(of_y);
      });
      return Ok();
    });
  });
}

// to += factor * (b / (|a| |b|) - cosine * a / |a|^2), the derivative of the cosine with respect to
// a.
template <typename T>
void add_slope(const T* a, const T* b, int64_t width, double factor, T* to) {
  const double square = dot(a, a, width);
  const double other = dot(b, b, width);
  const double both = std::sqrt(square) * std::sqrt(other);
  const double cosine = dot(a, b, width) / both;
  const T of_b = static_cast<T>(factor / both);
  const T of_a = static_cast<T>(factor * cosine / square);
  for (int64_t i = 0; i < width; ++i) to[i] += of_b * b[i] - of_a * a[i];
}

StatusOr<Kernel> cos_sim_grad(const KernelSetup& op) {
  return Kernel([x_arg = op.input("X"), y_arg = op.input("Y"), dout_arg = op.input("Out@GRAD"),
                 dx_arg = op.output("X@GRAD"),
                 dy_arg = op.output("Y@GRAD")](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    const Tensor& y = ctx.in(y_arg);
    const Tensor& dout = ctx.in(dout_arg);
    MILLRACE_ASSIGN_OR_RETURN(const CosSimRows rows, rows_of(x, y));
    if (dout.numel() != rows.count || dout.dtype() != x.dtype())
      return ctx.error("Out@GRAD must have {} elements of the type of X {}, found {}", rows.count,
                       describe(x), describe(dout));
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      Tensor* const dx = ctx.find_out(dx_arg);
      Tensor* const dy = ctx.find_out(dy_arg);
      for (Tensor* const grad : {dx, dy}) {
        if (grad != nullptr) std::fill_n(grad->data<T>(), grad->numel(), T(0));
      }
      for_rows_of<T>(rows, x, y, [&](int64_t r, const T* a, const T* b) {
        const auto factor = static_cast<double>(dout.data<T>()[r]);
        if (dx != nullptr) add_slope(a, b, rows.width, factor, dx->data<T>() + r * rows.width);
        if (dy != nullptr) add_slope(b, a, rows.width, factor, dy->data<T>() + r * rows.y_step);
      });
      return Ok();
    });
  });
}

}  // namespace
}  // namespace cos_sim_kernels

/// cos_sim with its gradient.
void add_math_cos_sim(KernelRegistry& registry) {
  using namespace cos_sim_kernels;
  registry.add("cos_sim", cos_sim);
  registry.add("cos_sim_grad", cos_sim_grad);
}

}  // namespace millrace::kernels
