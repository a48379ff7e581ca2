#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/elementwise/binary.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace dist_kernels {
namespace {

struct DistArgs {
  ArgIndex x;
  ArgIndex y;
  double p;
  explicit DistArgs(const KernelSetup& op)
      : x(op.input("X")), y(op.input("Y")), p(op.attr<float>("p")) {}

  // Nest over X, Y and their difference.
  [[nodiscard]] StatusOr<BroadcastNest> nest(const KernelContext& ctx) const {
    const Tensor& a = ctx.in(x);
    const Tensor& b = ctx.in(y);
    if (a.dtype() != b.dtype())
      return ctx.error("X and Y must have one element type, found {} and {}", describe(a),
                       describe(b));
    return broadcast_nest(a.dims(), b.dims(), -1);
  }
};

// p-norm of the values passed to add().
class Norm {
 public:
  explicit Norm(double p) : p_(p) {
    if (p == -std::numeric_limits<double>::infinity())
      total_ = std::numeric_limits<double>::infinity();
  }
  void add(double magnitude) {
    if (p_ == 0) {
      total_ += magnitude != 0 ? 1 : 0;
    } else if (std::isinf(p_)) {
      total_ = p_ > 0 ? std::max(total_, magnitude) : std::min(total_, magnitude);
    } else {
      total_ += p_ == 1 ? magnitude : p_ == 2 ? magnitude * magnitude : std::pow(magnitude, p_);
    }
  }
  [[nodiscard]] double value() const {
    if (p_ == 0 || p_ == 1 || std::isinf(p_)) return total_;
    return p_ == 2 ? std::sqrt(total_) : std::pow(total_, 1 / p_);
  }

 private:
  double p_;
  double total_ = 0;
};

// Calls body(position in the difference, X, Y) for all pairs.
template <typename T, typename Body>
void each_pair(const BroadcastNest& nest, const T* x, const T* y, Body&& body) {
  const auto stride = nest.run_stride();
  nest.each_run([&](const BroadcastNest::Offsets& at, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      body(at[kOfOut] + i, x[at[kOfX] + i * stride[kOfX]], y[at[kOfY] + i * stride[kOfY]]);
  });
}

StatusOr<Kernel> dist(const KernelSetup& op) {
  return Kernel(
      [args = DistArgs(op), out_arg = op.output("Out")](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const BroadcastNest nest, args.nest(ctx));
        const Tensor& x = ctx.in(args.x);
        return dispatch<FloatTypes>(x.dtype(), [&](auto tag) {
          using T = typename decltype(tag)::type;
          Norm norm(args.p);
          each_pair(nest, x.data<T>(), ctx.in(args.y).data<T>(), [&](int64_t, T a, T b) {
            norm.add(std::abs(static_cast<double>(a) - static_cast<double>(b)));
          });
          *ctx.out(out_arg).data<T>() = nest.count() == 0 ? T(0) : static_cast<T>(norm.value());
          return Ok();
        });
      });
}

// Derivative of the norm with respect to one difference.
double slope(double p, double difference, double norm) {
  const double sign = difference > 0 ? 1 : difference < 0 ? -1 : 0;
  const double magnitude = std::abs(difference);
  if (p == 0 || sign == 0 || norm == 0) return 0;
  if (p == 1) return sign;
  if (std::isinf(p)) return magnitude == norm ? sign : 0;
  return sign * std::pow(magnitude / norm, p - 1);
}

StatusOr<Kernel> dist_grad(const KernelSetup& op) {
  return Kernel([args = DistArgs(op), out_arg = op.input("Out"), dout_arg = op.input("Out@GRAD"),
                 dx_arg = op.output("X@GRAD"),
                 dy_arg = op.output("Y@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const BroadcastNest nest, args.nest(ctx));
    const Tensor& x = ctx.in(args.x);
    const Tensor& out = ctx.in(out_arg);
    const Tensor& dout = ctx.in(dout_arg);
    if (out.numel() != 1 || dout.numel() != 1 || out.dtype() != x.dtype() ||
        dout.dtype() != x.dtype())
      return ctx.error(
          "Out and Out@GRAD must have one element of the type of X {}, found {} and {}",
          describe(x), describe(out), describe(dout));
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      MILLRACE_ASSIGN_OR_RETURN(
          std::byte* const memory,
          ctx.device().scratch(static_cast<size_t>(nest.count()) * sizeof(T), 0));
      T* const slopes = reinterpret_cast<T*>(memory);
      const auto norm = static_cast<double>(*out.data<T>());
      const auto factor = static_cast<double>(*dout.data<T>());
      each_pair(nest, x.data<T>(), ctx.in(args.y).data<T>(), [&](int64_t i, T a, T b) {
        slopes[i] = static_cast<T>(factor * slope(args.p, static_cast<double>(a - b), norm));
      });
      if (Tensor* const dx = ctx.find_out(dx_arg))
        run_copied_grad(ctx.device(), nest, kOfX, /*negative=*/false, slopes, dx->data<T>(),
                        dx->numel());
      if (Tensor* const dy = ctx.find_out(dy_arg))
        run_copied_grad(ctx.device(), nest, kOfY, /*negative=*/true, slopes, dy->data<T>(),
                        dy->numel());
      return Ok();
    });
  });
}

}  // namespace
}  // namespace dist_kernels

/// dist with its gradient.
void add_math_dist(KernelRegistry& registry) {
  using namespace dist_kernels;
  registry.add("dist", dist);
  registry.add("dist_grad", dist_grad);
}

}  // namespace millrace::kernels
