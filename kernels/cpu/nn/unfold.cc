#include "kernels/cpu/gradient.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/patches.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

StatusOr<Kernel> unfold(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex y = op.output("Y");
  return Kernel(
      [=, attrs = read_patch_attrs(op, "kernel_sizes")](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
        MILLRACE_ASSIGN_OR_RETURN(const Patches p, patches_of(attrs, *in));
        return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
          using T = typename decltype(tag)::type;
          for (int64_t n = 0; n < in->dim(0); ++n) {
            const T* const image = in->data<T>() + n * p.image();
            T* const to = ctx.out(y).data<T>() + n * p.patch() * p.count();
            p.for_all([&](int64_t place, int64_t element, int64_t from) {
              to[element * p.count() + place] = from < 0 ? T{0} : image[from];
            });
          }
          return Ok();
        });
      });
}

StatusOr<Kernel> unfold_grad(const KernelSetup& op) {
  const GradientArgs gradient(op, "X", "Y");
  return Kernel([=,
                 attrs = read_patch_attrs(op, "kernel_sizes")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GradientTensors g, gradient.like_x(ctx, StartsAs::kZeros));
    if (!g) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Patches p, patches_of(attrs, *g.x));
    if (g.from->dtype() != g.x->dtype() || g.from->numel() != g.x->dim(0) * p.patch() * p.count())
      return ctx.error("Y@GRAD {} does not match X {}", describe(*g.from), describe(*g.x));
    return dispatch<FloatTypes>(g.x->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t n = 0; n < g.x->dim(0); ++n) {
        T* const image = g.to->data<T>() + n * p.image();
        const T* const arrived = g.from->data<T>() + n * p.patch() * p.count();
        p.for_all([&](int64_t place, int64_t element, int64_t to) {
          if (to >= 0) image[to] += arrived[element * p.count() + place];
        });
      }
      return Ok();
    });
  });
}

}  // namespace

void add_nn_unfold(KernelRegistry& registry) {
  registry.add("unfold", unfold);
  registry.add("unfold_grad", unfold_grad);
}

}  // namespace millrace::kernels
