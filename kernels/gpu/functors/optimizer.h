#pragma once

#include <cmath>
#include <cstdint>

namespace millrace::gpu {

/// param -= rate * grad. out may be param.
struct Descend {
  const float* param;
  const float* grad;
  const float* rate;  ///< one element
  float* out;
  constexpr void operator()(int64_t i) const { out[i] = param[i] - *rate * grad[i]; }
};

/// Momentum, with weight decay if decay is not 0. Outputs may be their inputs.
struct DescendWithMomentum {
  const float* param;
  const float* grad;
  const float* velocity;
  const float* rate;
  float* out;
  float* velocity_out;
  float mu;
  float decay;
  float rescale;
  bool nesterov;
  constexpr void operator()(int64_t i) const {
    const float old = param[i];
    const float g = grad[i] * rescale + decay * old;
    const float v = mu * velocity[i] + g;
    velocity_out[i] = v;
    out[i] = old - *rate * (nesterov ? g + mu * v : v);
  }
};

/// Adam. Outputs may be their inputs.
struct DescendByMoments {
  const float* param;
  const float* grad;
  const float* first;
  const float* second;
  const float* rate;
  const float* power1;  ///< beta1 ^ step, one element
  const float* power2;
  float* out;
  float* first_out;
  float* second_out;
  float beta1;
  float beta2;
  float epsilon;
  constexpr void operator()(int64_t i) const {
    const float g = grad[i];
    const float m = beta1 * first[i] + (1.0F - beta1) * g;
    const float v = beta2 * second[i] + (1.0F - beta2) * g * g;
    first_out[i] = m;
    second_out[i] = v;
    const float root = std::sqrt(1.0F - *power2);
    const float step = *rate * root / (1.0F - *power1);
    out[i] = param[i] - step * (m / (std::sqrt(v) + epsilon * root));
  }
};

/// Updates the powers of the decays for the next step; called once, with i = 0.
struct AdvancePowers {
  const float* power1;
  const float* power2;
  float* power1_out;
  float* power2_out;
  float beta1;
  float beta2;
  constexpr void operator()(int64_t /*i*/) const {
    *power1_out = *power1 * beta1;
    *power2_out = *power2 * beta2;
  }
};

}  // namespace millrace::gpu
