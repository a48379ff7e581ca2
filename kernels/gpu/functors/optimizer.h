#pragma once

#include <cmath>
#include <cstdint>

// Functors of optimizers on f32: element i of a parameter and of its states. All vectors have the
// dims of the parameter; rates and powers are one element in device memory, so that no call waits
// for the device.
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
  const float* velocity;  ///< state: decaying sum of the gradients
  const float* rate;      ///< one element
  float* out;
  float* velocity_out;
  float mu;       ///< decay of the velocity
  float decay;    ///< factor of the parameter that is added to its gradient (L2)
  float rescale;  ///< factor of the gradient
  bool nesterov;  ///< the step looks one velocity ahead
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
  const float* first;   ///< state: decaying mean of the gradients
  const float* second;  ///< state: decaying mean of their squares
  const float* rate;    ///< one element
  const float* power1;  ///< beta1 ^ step, one element
  const float* power2;  ///< beta2 ^ step, one element
  float* out;
  float* first_out;
  float* second_out;
  float beta1;    ///< decay of the first moment
  float beta2;    ///< decay of the second moment
  float epsilon;  ///< added to the corrected root of the second moment
  constexpr void operator()(int64_t i) const {
    const float g = grad[i];
    const float m = beta1 * first[i] + (1.0F - beta1) * g;
    const float v = beta2 * second[i] + (1.0F - beta2) * g * g;
    first_out[i] = m;
    second_out[i] = v;
    // Corrects the moments for their start at zero. As in the original, epsilon is scaled with the
    // root, which is the same as adding it to the corrected root.
    const float root = std::sqrt(1.0F - *power2);
    const float step = *rate * root / (1.0F - *power1);
    out[i] = param[i] - step * (m / (std::sqrt(v) + epsilon * root));
  }
};

/// Updates the powers of the decays for the next step; called once, with i = 0.
struct AdvancePowers {
  const float* power1;  ///< powers before this step
  const float* power2;
  float* power1_out;  ///< may be power1; the same for power2_out
  float* power2_out;
  float beta1;
  float beta2;
  constexpr void operator()(int64_t /*i*/) const {
    *power1_out = *power1 * beta1;
    *power2_out = *power2 * beta2;
  }
};

}  // namespace millrace::gpu
