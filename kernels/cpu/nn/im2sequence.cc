#include <vector>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/patches.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// Windows of each image; fewer output positions if Y provides its real size.
StatusOr<std::vector<Patches>> patches_by_image(const PatchAttrs& attrs,
                                                llvm::ArrayRef<int64_t> out_stride, const Tensor& x,
                                                const Tensor* real) {
  MILLRACE_ASSIGN_OR_RETURN(const Patches whole, patches_of(attrs, x));
  std::vector<Patches> all(static_cast<size_t>(x.dim(0)), whole);
  if (real == nullptr || x.dim(0) <= 1) return all;
  if (real->dtype() != DType::kFloat32 || real->numel() != 2 * x.dim(0) || out_stride.size() != 2) {
    return KernelContext::error("Y must have height and width of each of {} images, found {}",
                                x.dim(0), describe(*real));
  }
  const float* const sizes = real->data<float>();
  for (size_t n = 0; n < all.size(); ++n) {
    for (size_t i = 0; i < 2; ++i) {
      const float given = sizes[2 * n + i];
      if (!(given >= 0 && given < 1e9F))
        return KernelContext::error("Y has size {} for image {}", given, n);
      const int64_t size = (static_cast<int64_t>(given) + out_stride[i] - 1) / out_stride[i];
      const int64_t room = size + attrs.paddings[i] + attrs.paddings[2 + i] - attrs.kernel[i];
      const int64_t places = room < 0 ? 0 : room / attrs.strides[i] + 1;
      all[n].places[i] = places;
    }
  }
  return all;
}

StatusOr<Kernel> im2sequence(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex y = op.input("Y");
  const ArgIndex out = op.output("Out");
  const auto out_stride = op.attr<std::vector<int64_t>>("out_stride");
  return Kernel([=, attrs = read_patch_attrs(op, "kernels")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<Patches> all,
                              patches_by_image(attrs, out_stride, *in, ctx.find_in(y)));
    LodLevel offsets = {0};
    for (const Patches& p : all) offsets.push_back(offsets.back() + p.count());
    const int64_t width = in->dim(1) * attrs.kernel[0] * attrs.kernel[1];
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(to.resize(in->dtype(), {offsets.back(), width}));
    to.set_lod(Lod({offsets}));
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (size_t n = 0; n < all.size(); ++n) {
        const T* const image = in->data<T>() + static_cast<int64_t>(n) * all[n].image();
        T* const rows = to.data<T>() + offsets[n] * width;
        all[n].for_all([&](int64_t place, int64_t element, int64_t from) {
          rows[place * width + element] = from < 0 ? T{0} : image[from];
        });
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> im2sequence_grad(const KernelSetup& op) {
  const ArgIndex y = op.input("Y");
  const GradientArgs gradient(op);
  const auto out_stride = op.attr<std::vector<int64_t>>("out_stride");
  return Kernel([=, attrs = read_patch_attrs(op, "kernels")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GradientTensors g, gradient.like_x(ctx, StartsAs::kZeros));
    if (!g) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<Patches> all,
                              patches_by_image(attrs, out_stride, *g.x, ctx.find_in(y)));
    int64_t rows = 0;
    for (const Patches& p : all) rows += p.count();
    const int64_t width = g.x->dim(1) * attrs.kernel[0] * attrs.kernel[1];
    if (g.from->dtype() != g.x->dtype() || g.from->numel() != rows * width)
      return ctx.error("Out@GRAD {} does not match X {}", describe(*g.from), describe(*g.x));
    return dispatch<FloatTypes>(g.x->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* arrived = g.from->data<T>();
      for (size_t n = 0; n < all.size(); ++n) {
        T* const image = g.to->data<T>() + static_cast<int64_t>(n) * all[n].image();
        all[n].for_all([&](int64_t place, int64_t element, int64_t to) {
          if (to >= 0) image[to] += arrived[place * width + element];
        });
        arrived += all[n].count() * width;
      }
      return Ok();
    });
  });
}

}  // namespace

void add_nn_im2sequence(KernelRegistry& registry) {
  registry.add("im2sequence", im2sequence);
  registry.add("im2sequence_grad", im2sequence_grad);
}

}  // namespace millrace::kernels
