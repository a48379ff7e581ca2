#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/gpu/functors/walk.h"

// Functors of optimizers on f32. A rule has kStates, prepare(numbers), which returns the rule for
// one step, absent(), the rule for rows that a sparse gradient lacks, and operator()(param, grad,
// a, b, c), which updates a parameter and up to three states of its shape.
namespace millrace::gpu {

/// Numbers of a step in device memory, so that no call waits for the device. Unused ones are null.
struct StepNumbers {
  const float* rate;        ///< learning rate
  const float* power1;      ///< beta1 ^ step
  const float* power2;      ///< beta2 ^ step
  const float* squares[2];  ///< sums of squares of two vectors, as the rule says
  const uint8_t* skip;      ///< one flag: nothing changes
  [[nodiscard]] constexpr bool skips() const { return skip != nullptr && *skip != 0; }
};

/// Plain descent.
struct Descend {
  static constexpr int kStates = 0;
  float rate;  ///< learning rate of the step, set by prepare()
  [[nodiscard]] constexpr Descend prepare(const StepNumbers& n) const { return {*n.rate}; }
  [[nodiscard]] constexpr Descend absent() const { return *this; }
  constexpr void operator()(float& param, float grad, float& /*a*/, float& /*b*/,
                            float& /*c*/) const {
    param -= rate * grad;
  }
};

/// Momentum, with weight decay if decay is not 0.
struct DescendWithMomentum {
  static constexpr int kStates = 1;
  float mu;       ///< decay of the velocity
  float decay;    ///< factor of the parameter that is added to its gradient (L2)
  float rescale;  ///< factor of the gradient
  bool nesterov;  ///< the step looks one velocity ahead
  float rate;     ///< learning rate of the step, set by prepare()
  [[nodiscard]] constexpr DescendWithMomentum prepare(const StepNumbers& n) const {
    DescendWithMomentum made = *this;
    made.rate = *n.rate;
    return made;
  }
  [[nodiscard]] constexpr DescendWithMomentum absent() const { return *this; }
  constexpr void operator()(float& param, float grad, float& velocity, float& /*b*/,
                            float& /*c*/) const {
    const float g = grad * rescale + decay * param;
    velocity = mu * velocity + g;
    param -= rate * (nesterov ? g + mu * velocity : velocity);
  }
};

/// Momentum whose rate depends on the norms of parameter and gradient (lars).
struct DescendByNorms {
  static constexpr int kStates = 1;
  float mu;           ///< decay of the velocity
  float decay;        ///< weight decay, or decay of the averages
  float rescale;      ///< factor of the gradient
  float coefficient;  ///< share of the ratio of the norms
  float epsilon;      ///< added to a divisor, so that it is not 0
  float rate;         ///< learning rate of the step, set by prepare()
  /// squares: of the parameter, of the gradient.
  [[nodiscard]] constexpr DescendByNorms prepare(const StepNumbers& n) const {
    DescendByNorms made = *this;
    made.rate = *n.rate;
    const float param = std::sqrt(*n.squares[0]);
    const float grad = rescale * std::sqrt(*n.squares[1]);
    if (decay > 0.0F && param > 0.0F && grad > 0.0F)
      made.rate *= coefficient * param / (grad + decay * param + epsilon);
    return made;
  }
  [[nodiscard]] constexpr DescendByNorms absent() const { return *this; }
  constexpr void operator()(float& param, float grad, float& velocity, float& /*b*/,
                            float& /*c*/) const {
    velocity = mu * velocity + rate * (grad * rescale + decay * param);
    param -= velocity;
  }
};

/// Adam, and with `decay` AdamW.
struct DescendByMoments {
  static constexpr int kStates = 2;
  float beta1;           ///< decay of the first moment
  float beta2;           ///< decay of the second moment
  float epsilon;         ///< added to the root of the second moment
  float decay;           ///< of the parameter, times the rate
  bool advanced1;        ///< the power is multiplied by its beta before it is used
  bool advanced2;        ///< the same for the second power
  float rate;            ///< learning rate of the step, set by prepare()
  float scaled_epsilon;  ///< epsilon times the correction of the second moment
  float kept;            ///< share of the parameter that remains
  [[nodiscard]] constexpr DescendByMoments prepare(const StepNumbers& n) const {
    DescendByMoments made = *this;
    const float power1 = advanced1 ? *n.power1 * beta1 : *n.power1;
    const float power2 = advanced2 ? *n.power2 * beta2 : *n.power2;
    // Corrects the moments for their start at zero. As in the original, epsilon is scaled with the
    // root, which is the same as adding it to the corrected root.
    const float root = std::sqrt(1.0F - power2);
    made.rate = *n.rate * root / (1.0F - power1);
    made.scaled_epsilon = epsilon * root;
    made.kept = 1.0F - *n.rate * decay;
    return made;
  }
  /// As in the original, rows without a gradient use the uncorrected epsilon.
  [[nodiscard]] constexpr DescendByMoments absent() const {
    DescendByMoments made = *this;
    made.scaled_epsilon = epsilon;
    return made;
  }
  constexpr void operator()(float& param, float grad, float& first, float& second,
                            float& /*c*/) const {
    first = beta1 * first + (1.0F - beta1) * grad;
    second = beta2 * second + (1.0F - beta2) * grad * grad;
    param = kept * param - rate * (first / (std::sqrt(second) + scaled_epsilon));
  }
};

/// Adamax: the second moment is a decaying maximum.
struct DescendByMaximum {
  static constexpr int kStates = 2;
  float beta1;    ///< decay of the first moment
  float beta2;    ///< decay of the second moment
  float epsilon;  ///< added to a divisor, so that it is not 0
  float rate;     ///< learning rate of the step, set by prepare()
  [[nodiscard]] constexpr DescendByMaximum prepare(const StepNumbers& n) const {
    return {beta1, beta2, epsilon, *n.rate / (1.0F - *n.power1)};
  }
  [[nodiscard]] constexpr DescendByMaximum absent() const { return *this; }
  constexpr void operator()(float& param, float grad, float& moment, float& norm,
                            float& /*c*/) const {
    moment = beta1 * moment + (1.0F - beta1) * grad;
    const float old = beta2 * norm + epsilon;
    const float size = std::abs(grad);
    norm = size < old ? old : size;
    param -= rate * (moment / norm);
  }
};

/// Adagrad; decayed if the shares are not 1.
struct DescendBySquares {
  static constexpr int kStates = 1;
  float old_share;  ///< decay of the sum of squares
  float new_share;  ///< weight of the new square
  float epsilon;    ///< added to a divisor, so that it is not 0
  float rate;       ///< learning rate of the step, set by prepare()
  [[nodiscard]] constexpr DescendBySquares prepare(const StepNumbers& n) const {
    return {old_share, new_share, epsilon, *n.rate};
  }
  [[nodiscard]] constexpr DescendBySquares absent() const { return *this; }
  constexpr void operator()(float& param, float grad, float& moment, float& /*b*/,
                            float& /*c*/) const {
    moment = old_share * moment + new_share * grad * grad;
    param -= rate * grad / (std::sqrt(moment) + epsilon);
  }
};

/// Adadelta.
struct DescendByUpdates {
  static constexpr int kStates = 2;
  float rho;      ///< decay of both averages
  float epsilon;  ///< added to a divisor, so that it is not 0
  float rate;     ///< learning rate of the step, set by prepare()
  [[nodiscard]] constexpr DescendByUpdates prepare(const StepNumbers& n) const {
    return {rho, epsilon, n.rate == nullptr ? 1.0F : *n.rate};
  }
  [[nodiscard]] constexpr DescendByUpdates absent() const { return *this; }
  constexpr void operator()(float& param, float grad, float& grads, float& updates,
                            float& /*c*/) const {
    grads = rho * grads + (1.0F - rho) * grad * grad;
    const float update = -std::sqrt((updates + epsilon) / (grads + epsilon)) * grad;
    updates = rho * updates + (1.0F - rho) * update * update;
    param += rate * update;
  }
};

/// RMSProp; if centered, the square of the mean gradient is subtracted.
template <bool kCentered>
struct DescendByRoots {
  static constexpr int kStates = kCentered ? 3 : 2;
  float decay;     ///< weight decay, or decay of the averages
  float epsilon;   ///< added to a divisor, so that it is not 0
  float momentum;  ///< decay of the steps
  float rate;      ///< learning rate of the step, set by prepare()
  [[nodiscard]] constexpr DescendByRoots prepare(const StepNumbers& n) const {
    return {decay, epsilon, momentum, *n.rate};
  }
  [[nodiscard]] constexpr DescendByRoots absent() const { return *this; }
  constexpr void operator()(float& param, float grad, float& square, float& moment,
                            float& mean) const {
    if (kCentered) mean = decay * mean + (1.0F - decay) * grad;
    square = decay * square + (1.0F - decay) * grad * grad;
    const float spread = kCentered ? square - mean * mean : square;
    moment = momentum * moment + rate * grad / std::sqrt(spread + epsilon);
    param -= moment;
  }
};

/// Follows the regularized leader (ftrl).
struct FollowLeader {
  static constexpr int kStates = 2;
  float l1;     ///< weight of the sum of magnitudes
  float l2;     ///< weight of the sum of squares
  float power;  ///< exponent of the sum of squares, 0.5 for a root
  float rate;   ///< learning rate of the step, set by prepare()
  [[nodiscard]] constexpr float raised(float x) const {
    return power == 0.5F ? std::sqrt(x) : std::pow(x, power);
  }
  [[nodiscard]] constexpr FollowLeader prepare(const StepNumbers& n) const {
    return {l1, l2, power, *n.rate};
  }
  [[nodiscard]] constexpr FollowLeader absent() const { return *this; }
  constexpr void operator()(float& param, float grad, float& square, float& linear,
                            float& /*c*/) const {
    const float sum = square + grad * grad;
    const float new_power = raised(sum);
    linear += grad - (new_power - raised(square)) / rate * param;
    const float target = l1 * std::copysign(1.0F, linear) - linear;  // l1 may be negative
    param = std::abs(linear) > l1 ? target / (new_power / rate + 2.0F * l2) : 0.0F;
    square = sum;
  }
};

/// First half of lamb: the moments. The rest needs norms over all elements.
struct AdvanceMoments {
  static constexpr int kStates = 2;
  float beta1;  ///< decay of the first moment
  float beta2;  ///< decay of the second moment
  [[nodiscard]] constexpr AdvanceMoments prepare(const StepNumbers& /*n*/) const { return *this; }
  [[nodiscard]] constexpr AdvanceMoments absent() const { return *this; }
  constexpr void operator()(float& /*param*/, float grad, float& first, float& second,
                            float& /*c*/) const {
    first = beta1 * first + (1.0F - beta1) * grad;
    second = beta2 * second + (1.0F - beta2) * grad * grad;
  }
};

/// direction[i] of lamb, before its rate.
struct LambDirection {
  const float* param;   ///< elements before the update
  const float* first;   ///< first moment, [count]
  const float* second;  ///< second moment, [count]
  const float* power1;  ///< beta1 ^ step
  const float* power2;  ///< beta2 ^ step
  float* direction;     ///< result, [count]
  float epsilon;        ///< added to a divisor, so that it is not 0
  float decay;          ///< weight decay, or decay of the averages
  constexpr void operator()(int64_t i) const {
    const float correction1 = 1.0F / (1.0F - *power1);
    const float correction2 = 1.0F / (1.0F - *power2);
    direction[i] =
        first[i] * correction1 / (std::sqrt(second[i] * correction2) + epsilon) + decay * param[i];
  }
};

/// Last part of lamb: the step along a direction, which is the gradient of this rule. squares: of
/// the parameter, of the direction; null: not adapted.
struct StepByTrust {
  static constexpr int kStates = 0;
  float rate;  ///< learning rate of the step, set by prepare()
  [[nodiscard]] constexpr StepByTrust prepare(const StepNumbers& n) const {
    float factor = 1.0F;
    if (n.squares[0] != nullptr && *n.squares[0] > 0.0F && *n.squares[1] > 0.0F)
      factor = std::sqrt(*n.squares[0] / *n.squares[1]);
    return {*n.rate * factor};
  }
  [[nodiscard]] constexpr StepByTrust absent() const { return *this; }
  constexpr void operator()(float& param, float grad, float& /*a*/, float& /*b*/,
                            float& /*c*/) const {
    param -= rate * grad;
  }
};

/// One element of a parameter and its states. Outputs may be their inputs.
template <typename Rule>
struct Update {
  Rule rule;               ///< formula with its attributes
  StepNumbers numbers;     ///< of this step
  const float* param;      ///< elements before the update
  const float* grad;       ///< of a dense update
  float* out;              ///< elements after the update
  const float* states[3];  ///< by the order of the rule, before the update
  float* states_out[3];    ///< after the update

  constexpr void apply(const Rule& made, int64_t i, float g) const {
    float p = param[i];
    float s[3] = {};
    for (int k = 0; k < Rule::kStates; ++k) s[k] = states[k][i];
    if (!numbers.skips()) made(p, g, s[0], s[1], s[2]);
    out[i] = p;
    for (int k = 0; k < Rule::kStates; ++k) states_out[k][i] = s[k];
  }
  constexpr void operator()(int64_t i) const { apply(rule.prepare(numbers), i, grad[i]); }
};

/// A sparse gradient in device memory, grouped by row of the parameter.
struct RowGroups {
  const float* values;     ///< [sources, width]
  const int64_t* rows;     ///< row of the parameter, by group
  const int32_t* starts;   ///< first entry of each group in `sources`, and the end
  const int32_t* sources;  ///< rows of values
  Divider width;           ///< elements of a row
  /// Sum of column `column` of a group.
  [[nodiscard]] constexpr float sum(int64_t group, int64_t column) const {
    float total = 0.0F;
    for (int32_t k = starts[group]; k < starts[group + 1]; ++k) {
      const float value = values[static_cast<int64_t>(sources[k]) * width.divisor + column];
      // the first is copied, so that the sum of one -0 is -0
      total = k == starts[group] ? value : total + value;
    }
    return total;
  }
};

/// Updates the rows of a sparse gradient: call i has one element of one group.
template <typename Rule>
struct UpdateOwnRows {
  Update<Rule> update;  ///< parameter and states
  RowGroups groups;     ///< the gradient
  constexpr void operator()(int64_t i) const {
    const auto group = static_cast<int64_t>(groups.width.quotient(static_cast<uint32_t>(i)));
    const int64_t column = i - group * groups.width.divisor;
    update.apply(update.rule.prepare(update.numbers),
                 groups.rows[group] * groups.width.divisor + column, groups.sum(group, column));
  }
};

/// positions[rows[i]] = i.
struct PlaceRows {
  const int64_t* rows;  ///< row of the parameter, by group
  int32_t* positions;   ///< group by row of the parameter
  constexpr void operator()(int64_t i) const { positions[rows[i]] = static_cast<int32_t>(i); }
};

/// Updates all rows; the gradient of those that it lacks is 0. Call i has element i.
template <typename Rule>
struct UpdateAllRows {
  Update<Rule> update;       ///< parameter and states
  RowGroups groups;          ///< the gradient
  const int32_t* positions;  ///< group by row of the parameter; -1: none
  constexpr void operator()(int64_t i) const {
    const auto row = static_cast<int64_t>(groups.width.quotient(static_cast<uint32_t>(i)));
    const int32_t group = positions[row];
    const Rule made = update.rule.prepare(update.numbers);
    if (group < 0) {
      update.apply(made.absent(), i, 0.0F);
    } else {
      update.apply(made, i, groups.sum(group, i - row * groups.width.divisor));
    }
  }
};

/// Updates the powers of the decays for the next step; called once, with i = 0.
struct AdvancePowers {
  const float* power1;  ///< powers before this step
  const float* power2;  ///< beta2 ^ step
  float* power1_out;    ///< may be power1; the same for power2_out
  float* power2_out;
  float beta1;          ///< decay of the first moment
  float beta2;          ///< decay of the second moment
  const uint8_t* skip;  ///< as in StepNumbers
  constexpr void operator()(int64_t /*i*/) const {
    const bool skips = skip != nullptr && *skip != 0;
    *power1_out = *power1 * (skips ? 1.0F : beta1);
    *power2_out = *power2 * (skips ? 1.0F : beta2);
  }
};

}  // namespace millrace::gpu
