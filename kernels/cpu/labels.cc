#include "kernels/cpu/labels.h"

#include "kernels/cpu/convert.h"

namespace millrace::kernels {

StatusOr<const int64_t*> integers_of(const KernelContext& ctx, const Tensor& tensor, int slot) {
  if (is_floating(tensor.dtype()))
    return ctx.error("expected integers, found {}", describe(tensor));
  MILLRACE_ASSIGN_OR_RETURN(const std::byte* const bytes,
                            elements_as(ctx.device(), tensor, DType::kInt64, slot));
  return reinterpret_cast<const int64_t*>(bytes);
}

StatusOr<const int64_t*> class_labels(const KernelContext& ctx, const Tensor& label, int64_t count,
                                      int64_t classes, int64_t ignored, int slot) {
  if (label.numel() != count)
    return ctx.error("Label must have {} elements, found {}", count, describe(label));
  if (is_floating(label.dtype()))
    return ctx.error("Label must hold class numbers, found {}", describe(label));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t* const labels, integers_of(ctx, label, slot));
  for (int64_t i = 0; i < count; ++i) {
    if (labels[i] == ignored || (labels[i] >= 0 && labels[i] < classes)) continue;
    return ctx.error("label {} is {}, expected a class in [0, {})", i, labels[i], classes);
  }
  return labels;
}

}  // namespace millrace::kernels
