#include <algorithm>
#include <cmath>

#include "kernels/cpu/random/bits.h"
#include "kernels/cpu/random/shape_arg.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace uniform_kernels {
namespace {

struct Range {
  double min;
  double max;
};

// The upper bound is exclusive, and rounding must not reach it.
float below(float max, float min) {
  return max > min ? std::nextafter(max, min) : max;
}
double below(double max, double min) {
  return max > min ? std::nextafter(max, min) : max;
}

// Elements [2 * begin, 2 * end) of a tensor of count elements: one draw produces two floats.
template <typename T>
void draw_float_range(uint64_t key, Range range, T* out, int64_t begin, int64_t end,
                      int64_t count) {
  const auto min = static_cast<float>(range.min);
  const auto span = static_cast<float>(range.max) - min;
  const float last = below(static_cast<float>(range.max), min);
  const int64_t pairs = std::min(end, count / 2);
  for (int64_t i = begin; i < pairs; ++i) {
    const uint64_t bits = random_bits(key, static_cast<uint64_t>(i));
    const float first = min + span * unit_float(static_cast<uint32_t>(bits));
    const float second = min + span * unit_float(static_cast<uint32_t>(bits >> 32U));
    out[2 * i] = static_cast<T>(std::min(first, last));
    out[2 * i + 1] = static_cast<T>(std::min(second, last));
  }
  if (end > count / 2) {
    const uint64_t bits = random_bits(key, static_cast<uint64_t>(count / 2));
    out[count - 1] =
        static_cast<T>(std::min(min + span * unit_float(static_cast<uint32_t>(bits)), last));
  }
}

void draw_doubles(uint64_t key, Range range, double* out, int64_t begin, int64_t end) {
  const double last = below(range.max, range.min);
  const double span = range.max - range.min;
  for (int64_t i = begin; i < end; ++i) {
    const double unit = unit_double(random_bits(key, static_cast<uint64_t>(i)));
    out[i] = std::min(range.min + span * unit, last);
  }
}

Status draw(CpuDevice& device, uint64_t key, Range range, Tensor& out) {
  return draw_floats(
      device, out, 16384, 8192,
      [&](double* to, int64_t begin, int64_t end) { draw_doubles(key, range, to, begin, end); },
      [&](auto* to, int64_t begin, int64_t end) {
        draw_float_range(key, range, to, begin, end, out.numel());
      });
}

// Diagonal that is overwritten: diag_num elements, diag_step + 1 apart.
struct UniformDiagonal {
  int64_t count = 0;
  int64_t step = 0;
  double value = 1;
};

Status set_diagonal(const KernelContext& ctx, const UniformDiagonal& diagonal, Tensor& out) {
  if (diagonal.count == 0) return Ok();
  if ((diagonal.count - 1) * (diagonal.step + 1) >= out.numel()) {
    return ctx.error("{} diagonal elements, {} apart, do not fit {}", diagonal.count,
                     diagonal.step + 1, describe(out));
  }
  return dispatch<AllFloatTypes>(out.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < diagonal.count; ++i)
      out.data<T>()[i * (diagonal.step + 1)] =
          static_cast<T>(static_cast<Compute<T>>(diagonal.value));
    return Ok();
  });
}

StatusOr<Kernel> uniform(const KernelSetup& op) {
  const ArgIndex out = op.output("Out");
  const ShapeArg shape(op);
  const Range range{op.attr<float>("min"), op.attr<float>("max")};
  const UniformDiagonal diagonal{op.attr<int64_t>("diag_num"), op.attr<int64_t>("diag_step"),
                                 op.attr<float>("diag_val")};
  const auto seed = op.attr<int64_t>("seed");
  if (range.min > range.max)
    return op.error("attribute 'min' is {}, which is above 'max' {}", range.min, range.max);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const created, shape.create(ctx, out));
    Tensor& to = *created;
    MILLRACE_RETURN_IF_ERROR(draw(ctx.device(), stream_key(ctx.device(), seed), range, to));
    return set_diagonal(ctx, diagonal, to);
  });
}

}  // namespace
}  // namespace uniform_kernels

void add_random_uniform(KernelRegistry& registry) {
  using namespace uniform_kernels;
  registry.add("uniform_random", uniform);
  registry.add("uniform_random_batch_size_like", uniform);
}

}  // namespace millrace::kernels
