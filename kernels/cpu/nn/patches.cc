#include "kernels/cpu/nn/patches.h"

#include <algorithm>
#include <vector>

namespace millrace::kernels {

PatchAttrs read_patch_attrs(const KernelSetup& op, const char* kernel_attr) {
  const auto list = [&](const char* name) {
    if (op.def().find_attr(name) == nullptr) return Dims{1, 1};
    const auto values = op.attr<std::vector<int64_t>>(name);
    return Dims(values.begin(), values.end());
  };
  PatchAttrs attrs{list(kernel_attr), list("strides"), list("dilations"), list("paddings")};
  if (attrs.paddings.size() == 2) attrs.paddings.append({attrs.paddings[0], attrs.paddings[1]});
  return attrs;
}

StatusOr<Patches> patches_of(const PatchAttrs& attrs, const Tensor& x) {
  if (x.rank() != 4) return KernelContext::error("X must hold images, found {}", describe(x));
  const auto fits = [](llvm::ArrayRef<int64_t> list, size_t count, int64_t least) {
    return list.size() == count &&
           std::all_of(list.begin(), list.end(), [least](int64_t v) { return v >= least; });
  };
  if (!fits(attrs.kernel, 2, 1) || !fits(attrs.strides, 2, 1) || !fits(attrs.dilations, 2, 1) ||
      !fits(attrs.paddings, 4, 0)) {
    return KernelContext::error("window {}, strides {}, dilations {} and paddings {} are invalid",
                                ops::dims_text(attrs.kernel), ops::dims_text(attrs.strides),
                                ops::dims_text(attrs.dilations), ops::dims_text(attrs.paddings));
  }
  Patches p;
  p.channels = x.dim(1);
  ops::Window window{attrs.kernel,
                     attrs.strides,
                     attrs.dilations,
                     {attrs.paddings[0], attrs.paddings[1]},
                     {attrs.paddings[2], attrs.paddings[3]}};
  for (size_t i = 0; i < 2; ++i) {
    p.size[i] = x.dim(static_cast<int64_t>(2 + i));
    p.kernel[i] = attrs.kernel[i];
    p.strides[i] = attrs.strides[i];
    p.dilations[i] = attrs.dilations[i];
    p.before[i] = attrs.paddings[i];
    p.places[i] = ops::window_places(window, i, p.size[i]);
    if (p.places[i] < 1)
      return KernelContext::error("no output position for a window of {} in X {}",
                                  ops::dims_text(attrs.kernel), describe(x));
  }
  return p;
}

}  // namespace millrace::kernels
