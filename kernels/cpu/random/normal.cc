#include <cmath>
#include <numbers>

#include "kernels/cpu/random/bits.h"
#include "kernels/cpu/random/shape_arg.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace normal {
namespace {

struct NormalPair {
  float first;
  float second;
};

// Two standard normal numbers from 64 bits (Box-Muller). The angle is at most an eighth of a turn;
// two bits select the quadrant.
inline NormalPair normal_pair(uint64_t bits) {
  const auto low = static_cast<uint32_t>(bits);
  const auto high = static_cast<uint32_t>(bits >> 32U);
  // 31 bits convert to float without a call; adding 0.5 keeps the logarithm finite
  const float u = (static_cast<float>(static_cast<int32_t>(low >> 1U)) + 0.5F) * 0x1p-31F;
  const float radius = std::sqrt(std::fmax(-2.0F * vmath::log(u), 0.0F));
  const float turn = static_cast<float>(static_cast<int32_t>(high << 2U)) * 0x1p-31F;  // [-1, 1)
  const float a = turn * 0.78539816F;
  const float a2 = a * a;
  const float sine = a * (1.0F + a2 * (-0.16666655F + a2 * (8.3321609e-3F + a2 * -1.9515296e-4F)));
  const float cosine =
      1.0F + a2 * (-0.5F + a2 * (4.1666418e-2F + a2 * (-1.3887316e-3F + a2 * 2.443316e-5F)));
  const bool swap = (high >> 30U & 1U) != 0;
  const float sign = (high >> 31U) != 0 ? -radius : radius;
  return {sign * (swap ? sine : cosine), sign * (swap ? cosine : sine)};
}

struct Law {
  double mean;
  double deviation;
};

template <typename T>
void draw_float_range(uint64_t key, Law law, T* out, int64_t begin, int64_t end, int64_t count) {
  const auto mean = static_cast<float>(law.mean);
  const auto deviation = static_cast<float>(law.deviation);
  const int64_t pairs = std::min(end, count / 2);
  for (int64_t i = begin; i < pairs; ++i) {
    const NormalPair pair = normal_pair(random_bits(key, static_cast<uint64_t>(i)));
    out[2 * i] = static_cast<T>(mean + deviation * pair.first);
    out[2 * i + 1] = static_cast<T>(mean + deviation * pair.second);
  }
  if (end > count / 2) {
    const NormalPair pair = normal_pair(random_bits(key, static_cast<uint64_t>(count / 2)));
    out[count - 1] = static_cast<T>(mean + deviation * pair.first);
  }
}

void draw_doubles(uint64_t key, Law law, double* out, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const auto at = 2 * static_cast<uint64_t>(i);
    const double u = 1.0 - unit_double(random_bits(key, at));
    const double angle = 2 * std::numbers::pi * unit_double(random_bits(key, at + 1));
    out[i] = law.mean + law.deviation * std::sqrt(-2.0 * std::log(u)) * std::cos(angle);
  }
}

Status draw_normal(CpuDevice& device, uint64_t key, Law law, Tensor& out) {
  return draw_floats(
      device, out, 4096, 4096,
      [&](double* to, int64_t begin, int64_t end) { draw_doubles(key, law, to, begin, end); },
      [&](auto* to, int64_t begin, int64_t end) {
        draw_float_range(key, law, to, begin, end, out.numel());
      });
}

// Inverse of the error function times sqrt(2) for |y| < 0.96, which is enough for two standard
// deviations; the polynomial of M. Giles, "Approximating the erfinv function".
inline float inverse(float y) {
  const float w = -vmath::log((1.0F - y) * (1.0F + y)) - 2.5F;
  float p = 2.81022636e-08F;
  p = p * w + 3.43273939e-07F;
  p = p * w - 3.5233877e-06F;
  p = p * w - 4.39150654e-06F;
  p = p * w + 0.00021858087F;
  p = p * w - 0.00125372503F;
  p = p * w - 0.00417768164F;
  p = p * w + 0.246640727F;
  p = p * w + 1.50140941F;
  return p * y * 1.41421356F;
}

Status draw_truncated(CpuDevice& device, uint64_t key, Law law, Tensor& out) {
  // Uniform over the probability within two standard deviations, as an argument of the inverse
  // error function.
  constexpr float kCovered = 0.95449974F;
  return dispatch<AllFloatTypes>(out.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    T* const to = out.data<T>();
    const auto mean = static_cast<Compute<T>>(law.mean);
    const auto deviation = static_cast<Compute<T>>(law.deviation);
    device.parallel_for(out.numel(), 8192, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto bits = static_cast<uint32_t>(random_bits(key, static_cast<uint64_t>(i)) >> 32U);
        const float y = kCovered * (2.0F * unit_float(bits) - 1.0F + 0x1p-24F);
        to[i] = static_cast<T>(mean + deviation * static_cast<Compute<T>>(inverse(y)));
      }
    });
    return Ok();
  });
}

using Draw = Status (*)(CpuDevice&, uint64_t, Law, Tensor&);

StatusOr<Kernel> make(const KernelSetup& op, Draw draw) {
  const ArgIndex out = op.output("Out");
  const ShapeArg shape(op);
  const Law law{op.attr<float>("mean"), op.attr<float>("std")};
  const auto seed = op.attr<int64_t>("seed");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const created, shape.create(ctx, out));
    Tensor& to = *created;
    return draw(ctx.device(), stream_key(ctx.device(), seed), law, to);
  });
}

StatusOr<Kernel> gaussian(const KernelSetup& op) {
  return make(op, draw_normal);
}
StatusOr<Kernel> truncated(const KernelSetup& op) {
  return make(op, draw_truncated);
}

}  // namespace
}  // namespace normal

void add_random_normal(KernelRegistry& registry) {
  using namespace normal;
  registry.add("gaussian_random", gaussian);
  registry.add("gaussian_random_batch_size_like", gaussian);
  registry.add("truncated_gaussian_random", truncated);
}

}  // namespace millrace::kernels
