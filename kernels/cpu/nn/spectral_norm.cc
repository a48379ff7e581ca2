#include <cmath>
#include <vector>

#include "kernels/cpu/nn/channels.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace spectral_norm_kernels {
namespace {

struct SpectralNormAttrs {
  int64_t dim = 0;
  int64_t iterations = 1;
  double epsilon = 0;
};

SpectralNormAttrs read_attrs(const KernelSetup& op) {
  return {op.attr<int64_t>("dim"), op.attr<int64_t>("power_iters"), op.attr<float>("eps")};
}

// Weight viewed as a matrix with dim in front: element [row, column] is at column / inner * rows *
// inner + row * inner + column % inner.
struct SpectralNormShape {
  int64_t outer = 1;
  int64_t rows = 1;
  int64_t inner = 1;
  [[nodiscard]] int64_t columns() const { return outer * inner; }

  // Calls body(element, row, column) for all elements, in memory order.
  template <typename Body>
  void for_elements(Body&& body) const {
    int64_t at = 0;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < inner; ++i) body(at++, r, o * inner + i);
      }
    }
  }
};

StatusOr<SpectralNormShape> shape_of(const Tensor& weight, int64_t dim) {
  const auto rank = static_cast<int64_t>(weight.rank());
  if (dim < 0) dim += rank;
  if (dim < 0 || dim >= rank)
    return KernelContext::error("attribute 'dim' is {}, but Weight is {}", dim, describe(weight));
  SpectralNormShape shape;
  for (int64_t i = 0; i < dim; ++i) shape.outer *= weight.dim(i);
  for (int64_t i = dim + 1; i < rank; ++i) shape.inner *= weight.dim(i);
  shape.rows = weight.dim(dim);
  return shape;
}

template <typename T>
void normalize(std::vector<T>& v, T epsilon) {
  T squares = 0;
  for (const T value : v) squares += value * value;
  const T norm = std::sqrt(squares) + epsilon;
  for (T& value : v) value /= norm;
}

// The singular vectors after the iterations, and the singular value.
template <typename T>
struct Singular {
  std::vector<T> u;
  std::vector<T> v;
  T sigma = 0;
};

template <typename T>
Singular<T> iterate(const SpectralNormShape& s, const SpectralNormAttrs& attrs, const T* w,
                    const T* u, const T* v) {
  Singular<T> found{{u, u + s.rows}, {v, v + s.columns()}};
  const T epsilon = static_cast<T>(attrs.epsilon);
  for (int64_t k = 0; k < attrs.iterations; ++k) {
    std::fill(found.v.begin(), found.v.end(), T{0});
    s.for_elements([&](int64_t at, int64_t r, int64_t c) {
      found.v[static_cast<size_t>(c)] += w[at] * found.u[static_cast<size_t>(r)];
    });
    normalize(found.v, epsilon);
    std::fill(found.u.begin(), found.u.end(), T{0});
    s.for_elements([&](int64_t at, int64_t r, int64_t c) {
      found.u[static_cast<size_t>(r)] += w[at] * found.v[static_cast<size_t>(c)];
    });
    normalize(found.u, epsilon);
  }
  s.for_elements([&](int64_t at, int64_t r, int64_t c) {
    found.sigma += found.u[static_cast<size_t>(r)] * w[at] * found.v[static_cast<size_t>(c)];
  });
  return found;
}

struct SpectralNormArgs {
  ArgIndex weight, u, v, dout, out;
};

template <typename T>
StatusOr<Singular<T>> find_singular(const KernelContext& ctx, const SpectralNormArgs& args,
                                    const SpectralNormAttrs& attrs, const SpectralNormShape& s,
                                    const Tensor& weight) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const left, needed(ctx, args.u, "U"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const right, needed(ctx, args.v, "V"));
  MILLRACE_ASSIGN_OR_RETURN(const T* const u, channel_values<T>(left, "U", s.rows));
  MILLRACE_ASSIGN_OR_RETURN(const T* const v, channel_values<T>(right, "V", s.columns()));
  return iterate(s, attrs, weight.data<T>(), u, v);
}

// Calls body(singular vectors and value of Weight, its shape) with the type of its elements.
template <typename Body>
Status with_singular(const KernelContext& ctx, const SpectralNormArgs& args,
                     const SpectralNormAttrs& attrs, const Tensor& weight, Body&& body) {
  MILLRACE_ASSIGN_OR_RETURN(const SpectralNormShape s, shape_of(weight, attrs.dim));
  return dispatch<FloatTypes>(weight.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    MILLRACE_ASSIGN_OR_RETURN(const Singular<T> found,
                              find_singular<T>(ctx, args, attrs, s, weight));
    body(found, s);
    return Ok();
  });
}

StatusOr<Kernel> spectral_norm(const KernelSetup& op) {
  const SpectralNormArgs args{
      op.input("Weight"), op.input("U"), op.input("V"), {}, op.output("Out")};
  return Kernel([args, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const weight, needed(ctx, args.weight, "Weight"));
    return with_singular(ctx, args, attrs, *weight,
                         [&]<typename T>(const Singular<T>& found, auto) {
                           T* const out = ctx.out(args.out).data<T>();
                           for (int64_t i = 0; i < weight->numel(); ++i)
                             out[i] = weight->data<T>()[i] / found.sigma;
                         });
  });
}

// The singular vectors are treated as constants: d sigma / d Weight = u v'.
StatusOr<Kernel> spectral_norm_grad(const KernelSetup& op) {
  const SpectralNormArgs args{op.input("Weight"), op.input("U"), op.input("V"),
                              op.input("Out@GRAD"), op.output("Weight@GRAD")};
  return Kernel([args, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const weight, needed(ctx, args.weight, "Weight"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dw, result_like(ctx, args.out, *weight));
    if (dw == nullptr) return Ok();
    const Tensor* const dout = ctx.find_in(args.dout);
    if (dout == nullptr) {
      fill_zero(*dw);
      return Ok();
    }
    MILLRACE_RETURN_IF_ERROR(check_alike(*weight, "Weight", *dout, "Out@GRAD"));
    return with_singular(ctx, args, attrs, *weight,
                         [&]<typename T>(const Singular<T>& found, const SpectralNormShape& s) {
                           const T* const w = weight->data<T>();
                           const T* const g = dout->data<T>();
                           T along = 0;
                           for (int64_t i = 0; i < weight->numel(); ++i) along += g[i] * w[i];
                           along /= found.sigma;
                           s.for_elements([&](int64_t at, int64_t r, int64_t c) {
                             const T outer =
                                 found.u[static_cast<size_t>(r)] * found.v[static_cast<size_t>(c)];
                             dw->data<T>()[at] = (g[at] - along * outer) / found.sigma;
                           });
                         });
  });
}

}  // namespace
}  // namespace spectral_norm_kernels

void add_nn_spectral_norm(KernelRegistry& registry) {
  using namespace spectral_norm_kernels;
  registry.add("spectral_norm", spectral_norm);
  registry.add("spectral_norm_grad", spectral_norm_grad);
}

}  // namespace millrace::kernels
