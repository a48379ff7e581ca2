#include "kernels/cpu/gradient.h"
#include "kernels/cpu/nn/channels.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace maxout_kernels {
namespace {

// X viewed as [outer, channels of Out, groups, inner].
struct MaxoutShape {
  int64_t outer = 1;
  int64_t channels = 0;
  int64_t groups = 1;
  int64_t inner = 1;
};

StatusOr<MaxoutShape> shape_of(const Tensor& x, int64_t axis, int64_t groups) {
  const auto rank = static_cast<int64_t>(x.rank());
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank || groups < 1 || x.dim(axis) % groups != 0) {
    return KernelContext::error("attribute 'groups' ({}) does not divide dim {} of X {}", groups,
                                axis, describe(x));
  }
  MaxoutShape shape;
  for (int64_t i = 0; i < axis; ++i) shape.outer *= x.dim(i);
  for (int64_t i = axis + 1; i < rank; ++i) shape.inner *= x.dim(i);
  shape.channels = x.dim(axis) / groups;
  shape.groups = groups;
  return shape;
}

template <typename T>
void forward(const MaxoutShape& s, const T* x, T* out) {
  for (int64_t row = 0; row < s.outer * s.channels; ++row, out += s.inner) {
    std::copy_n(x, s.inner, out);
    x += s.inner;
    for (int64_t g = 1; g < s.groups; ++g, x += s.inner) {
      for (int64_t i = 0; i < s.inner; ++i) out[i] = x[i] > out[i] ? x[i] : out[i];
    }
  }
}

// The gradient goes to the first element of the group that equals the maximum.
template <typename T>
void backward(const MaxoutShape& s, const T* x, const T* out, const T* dout, T* dx) {
  for (int64_t row = 0; row < s.outer * s.channels; ++row) {
    for (int64_t i = 0; i < s.inner; ++i) {
      bool taken = false;
      for (int64_t g = 0; g < s.groups; ++g) {
        const int64_t at = (row * s.groups + g) * s.inner + i;
        const bool hit = !taken && x[at] == out[row * s.inner + i];
        dx[at] = hit ? dout[row * s.inner + i] : T{0};
        taken = taken || hit;
      }
    }
  }
}

StatusOr<Kernel> maxout(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const auto axis = op.attr<int64_t>("axis");
  const auto groups = op.attr<int64_t>("groups");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const MaxoutShape shape, shape_of(*in, axis, groups));
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      forward(shape, in->data<T>(), ctx.out(out).data<T>());
      return Ok();
    });
  });
}

StatusOr<Kernel> maxout_grad(const KernelSetup& op) {
  const ArgIndex out = op.input("Out");
  const GradientArgs gradient(op);
  const auto axis = op.attr<int64_t>("axis");
  const auto groups = op.attr<int64_t>("groups");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GradientTensors g, gradient.like_x(ctx, StartsAs::kUnset));
    if (!g) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const y, needed(ctx, out, "Out"));
    MILLRACE_RETURN_IF_ERROR(check_alike(*y, "Out", *g.from, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const MaxoutShape shape, shape_of(*g.x, axis, groups));
    if (y->dtype() != g.x->dtype() || y->numel() * groups != g.x->numel())
      return ctx.error("X {} and Out {} do not match", describe(*g.x), describe(*y));
    return dispatch<FloatTypes>(g.x->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      backward(shape, g.x->data<T>(), y->data<T>(), g.from->data<T>(), g.to->data<T>());
      return Ok();
    });
  });
}

}  // namespace
}  // namespace maxout_kernels

void add_nn_maxout(KernelRegistry& registry) {
  using namespace maxout_kernels;
  registry.add("maxout", maxout);
  registry.add("maxout_grad", maxout_grad);
}

}  // namespace millrace::kernels
