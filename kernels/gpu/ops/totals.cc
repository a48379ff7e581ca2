#include "kernels/gpu/ops/totals.h"

#include "kernels/gpu/ops/element_types.h"

namespace millrace::gpu {

Status total(Device& device, const ReducePlan& r, const Tensor& x, Tensor& y,
             const TotalSettings& settings) {
  MILLRACE_ASSIGN_OR_RETURN(const Elements from, elements_of(x));
  MILLRACE_ASSIGN_OR_RETURN(const Elements to, elements_of(y));
  const bool whole = to.type == ElementType::kI32 || to.type == ElementType::kI64;
  const bool real = to.type == ElementType::kF32 || to.type == ElementType::kF64;
  const bool half = from.type == ElementType::kF16 || from.type == ElementType::kBf16;
  if ((!whole && !real) || half || (whole && from.is_real()))
    return refuse("{} becomes {}", describe(x), describe(y));
  const Total sum{from, y.raw(), to.type, r.kept, r.gone, r.each, settings.rule, settings.number};
  return r.side_by_side ? lanes(device, sum, r.count) : rows(device, sum, r.count);
}

Status total_slope(Device& device, const ReducePlan& r, const TotalTensors& on,
                   const TotalSettings& settings) {
  MILLRACE_ASSIGN_OR_RETURN(const Elements x, elements_of(*on.x));
  MILLRACE_ASSIGN_OR_RETURN(const Elements dout, elements_of(*on.dout));
  Elements y = x;
  y.data = on.y == nullptr ? nullptr : on.y->raw();
  return each(device,
              TotalSlope{x, y, dout, on.dx->raw(), r.results, r.each, settings.rule,
                         settings.number, settings.epsilon},
              on.dx->numel());
}

}  // namespace millrace::gpu
