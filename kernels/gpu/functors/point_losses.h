#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/gpu/functors/activations.h"

// Losses that apply one formula to each element, and their gradients; as kernels/cpu/loss.
namespace millrace::gpu {

/// Inputs that a formula has at most.
inline constexpr int kMostPointInputs = 5;

/// to[i] = formula.of(elements i of the inputs), for the first Formula::kInputs of them.
template <typename Formula>
struct MapPoints {
  Formula formula;                        ///< constants of the formula
  const float* inputs[kMostPointInputs];  ///< in the order of the formula
  int32_t steps[kMostPointInputs];        ///< 1; 0: the input has one element, used for all
  float* to;                              ///< may be an input with step 1
  constexpr void operator()(int64_t i) const {
    float x[kMostPointInputs] = {};
    for (int k = 0; k < Formula::kInputs; ++k) x[k] = inputs[k][i * steps[k]];
    to[i] = formula.of(x);
  }
};

/// Sum of a formula over all elements, in double, divided by a number; one row.
template <typename Formula>
struct SumPoints {
  MapPoints<Formula> map;  ///< its result is not written
  int64_t count;           ///< elements
  float divisor;           ///< of the sum
  float* to;               ///< one element
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t /*row*/) const {
    double part = 0;
    for (int64_t i = team.rank(); i < count; i += team.size()) {
      float x[kMostPointInputs] = {};
      for (int k = 0; k < Formula::kInputs; ++k) x[k] = map.inputs[k][i * map.steps[k]];
      part += static_cast<double>(map.formula.of(x));
    }
    const auto sum = static_cast<float>(team.sum(part));
    if (team.rank() == 0) *to = sum / divisor;
  }
};

/// The larger number; NaN if a is.
constexpr float at_least(float a, float least) {
  return a < least ? least : a;
}
/// log(1 + exp(-|x|)).
constexpr float log_tail(float x) {
  return std::log1p(std::exp(x > 0.0F ? -x : x));
}
/// bce_loss of a probability p and a label y: -y log p - (1 - y) log(1 - p).
/// Logarithms are at least -100, so that a wrong certainty has a finite loss. NaN for what is no
/// probability: a device cannot report an error.
struct BinaryEntropy {
  static constexpr int kInputs = 2;
  [[nodiscard]] constexpr float of(const float* x) const {
    if (!(x[0] >= 0.0F && x[0] <= 1.0F)) return std::numeric_limits<float>::quiet_NaN();
    return (x[1] - 1.0F) * at_least(std::log(1.0F - x[0]), -100.0F) -
           x[1] * at_least(std::log(x[0]), -100.0F);
  }
};
/// Its gradient: (p - y) / (p (1 - p)), where the divisor is at least 1e-12.
/// Inputs are those above, then the gradient of the loss, as in all gradients here.
struct BinaryEntropySlope {
  static constexpr int kInputs = 3;
  [[nodiscard]] constexpr float of(const float* x) const {
    return x[2] * (x[0] - x[1]) / at_least((1.0F - x[0]) * x[0], 1e-12F);
  }
};

/// hinge_loss of a score x and a label y, 0 or 1: max(0, 1 - x (2 y - 1)).
struct Hinge {
  static constexpr int kInputs = 2;
  [[nodiscard]] constexpr float of(const float* x) const {
    return at_least(1.0F - x[0] * (2.0F * x[1] - 1.0F), 0.0F);
  }
};
/// Its gradient: -(2 y - 1) where there is a loss.
struct HingeSlope {
  static constexpr int kInputs = 3;
  [[nodiscard]] constexpr float of(const float* x) const {
    const float sign = 2.0F * x[1] - 1.0F;
    return x[0] * sign < 1.0F ? -x[2] * sign : 0.0F;
  }
};

/// teacher_student_sigmoid_loss of a score x: the label encodes a click z and the score of a
/// teacher. With s(z) = max(x, 0) - x z + log(1 + exp(-|x|)):
///   label < -1: no click, no teacher: s(0)
///   -1 <= label < 0: a click, no teacher: s(1)
///   0 <= label < 1: no click, a teacher with that score: s(0) + s(label)
///   1 <= label: a click, and a teacher: s(1) + s(label - 1)
struct TeacherStudent {
  static constexpr int kInputs = 2;
  [[nodiscard]] constexpr float of(const float* x) const {
    const float label = x[1];
    const float click = at_least(x[0], 0.0F) + log_tail(x[0]);
    const float score = label < 1.0F ? label : label - 1.0F;
    const float teacher = label < 0.0F ? 0.0F : click - x[0] * score;
    const bool clicked = label >= -1.0F && (label < 0.0F || label >= 1.0F);
    return (clicked ? click - x[0] : click) + teacher;
  }
};
/// Its gradient: for each of the terms s(z), sigmoid(x) - z; 0 for scores outside of the bounds.
struct TeacherStudentSlope {
  static constexpr int kInputs = 3;
  float most;   ///< scores from here on have no gradient
  float least;  ///< and up to here
  [[nodiscard]] constexpr float of(const float* x) const {
    const float y = logistic(x[0]);
    const float label = x[1];
    const float slope = label < -1.0F ? y : (label < 0.0F ? y - 1.0F : 2.0F * y - label);
    return x[0] < most && x[0] > least ? slope * x[2] : 0.0F;
  }
};

/// y - x, which huber_loss keeps for its gradient.
struct Residual {
  static constexpr int kInputs = 2;
  [[nodiscard]] constexpr float of(const float* x) const { return x[1] - x[0]; }
};
/// huber_loss of x and y, with r = |y - x|: r^2 / 2 up to delta, then delta (r - delta / 2), so
/// that outliers count linearly.
struct Huber {
  static constexpr int kInputs = 2;
  float delta;  ///< where the square ends
  [[nodiscard]] constexpr float of(const float* x) const {
    const float r = std::abs(x[1] - x[0]);
    return r <= delta ? 0.5F * r * r : delta * (r - 0.5F * delta);
  }
};
/// Its gradient, from the residual, which is limited to [-delta, delta].
struct HuberSlope {
  static constexpr int kInputs = 2;
  float delta;  ///< where the square ends
  float sign;   ///< 1 for y, -1 for x
  [[nodiscard]] constexpr float of(const float* x) const {
    const float low = x[0] < -delta ? -delta : x[0];
    return sign * (low > delta ? delta : low) * x[1];
  }
};

/// x * (2 * y - 1) of modified_huber_loss.
struct SignedScore {
  static constexpr int kInputs = 2;
  [[nodiscard]] constexpr float of(const float* x) const { return x[0] * (2.0F * x[1] - 1.0F); }
};
/// modified_huber_loss of a score x and a label y, 0 or 1, with v = x (2 y - 1):
///   v < -1: -4 v
///   v < 1: (1 - v)^2
///   else: 0
struct ModifiedHuber {
  static constexpr int kInputs = 2;
  [[nodiscard]] constexpr float of(const float* x) const {
    const float v = x[0] * (2.0F * x[1] - 1.0F);
    const float inner = v < 1.0F ? (1.0F - v) * (1.0F - v) : 0.0F;
    return v < -1.0F ? -4.0F * v : inner;
  }
};
/// Its gradient, from SignedScore v and the label: -4 or -2 (1 - v) or 0, times 2 y - 1.
struct ModifiedHuberSlope {
  static constexpr int kInputs = 3;
  [[nodiscard]] constexpr float of(const float* x) const {
    const float inner = x[0] < 1.0F ? -2.0F * (1.0F - x[0]) : 0.0F;
    return (x[0] < -1.0F ? -4.0F : inner) * (2.0F * x[1] - 1.0F) * x[2];
  }
};

/// kldiv_loss of the logarithm x of a probability and a target t: t (log t - x).
/// Targets that are not above 0 have no loss; NaN stays.
struct Divergence {
  static constexpr int kInputs = 2;
  [[nodiscard]] constexpr float of(const float* x) const {
    return x[1] > 0.0F ? x[1] * (std::log(x[1]) - x[0]) : x[1] * 0.0F;
  }
};
/// Its gradient, from the target: -t. The gradient of a mean has the number of elements, or of
/// batches, as its divisor.
struct DivergenceSlope {
  static constexpr int kInputs = 2;
  float divisor;  ///< of the gradient of the loss
  bool keeps;     ///< targets that are not finite stay so
  [[nodiscard]] constexpr float of(const float* x) const {
    if (x[0] > 0.0F) return -x[0] * (x[1] / divisor);
    return keeps ? x[0] * 0.0F : 0.0F;
  }
};

/// rank_loss of a label p, the probability that the first item should be before the second, and
/// the scores of both, with d = first - second: log(1 + exp(d)) - p d.
struct RankedPair {
  static constexpr int kInputs = 3;
  [[nodiscard]] constexpr float of(const float* x) const {
    const float difference = x[1] - x[2];
    return at_least(difference, 0.0F) + log_tail(difference) - x[0] * difference;
  }
};
/// Its gradient for one of the scores: +-(sigmoid(d) - p).
struct RankedPairSlope {
  static constexpr int kInputs = 4;
  float sign;  ///< 1 for the first score, -1 for the second
  [[nodiscard]] constexpr float of(const float* x) const {
    return sign * (logistic(x[1] - x[2]) - x[0]) * x[3];
  }
};

/// margin_rank_loss of two scores and a label y, 1 if the first should be larger, else -1:
/// max(0, margin - y (first - second)). NaN stays.
struct MarginRank {
  static constexpr int kInputs = 3;
  float margin;     ///< distance that the scores should have
  bool activation;  ///< 1 where there is a loss, instead of the loss
  [[nodiscard]] constexpr float of(const float* x) const {
    const float value = margin - x[2] * (x[0] - x[1]);
    if (activation) return value > 0.0F ? 1.0F : 0.0F;
    return value > 0.0F ? value : value * 0.0F;
  }
};
/// Its gradient for one of the scores, from the label and the activation: -+y where there is a
/// loss.
struct MarginRankSlope {
  static constexpr int kInputs = 3;
  float sign;  ///< -1 for the first score, 1 for the second
  [[nodiscard]] constexpr float of(const float* x) const { return sign * x[0] * x[1] * x[2]; }
};

/// 1 for a label that counts in a logistic loss, else 0.
struct CountedLabel {
  static constexpr int kInputs = 1;
  float ignored;  ///< label whose elements do not count
  [[nodiscard]] constexpr float of(const float* x) const {
    return std::abs(x[0] - ignored) > 1e-5F ? 1.0F : 0.0F;
  }
};
/// sigmoid_cross_entropy_with_logits of a score x, a label y, a weight w, and the number n of
/// elements that count: (max(x, 0) - x y + w log(1 + exp(-|x|))) / n.
/// Without `normalize` the caller gives n = 1; without elements that count it is 1e-5.
struct WeightedLogistic {
  static constexpr int kInputs = 4;
  float ignored;  ///< label whose elements do not count
  [[nodiscard]] constexpr float of(const float* x) const {
    const float scale = 1.0F / (x[3] == 0.0F ? 1e-5F : x[3]);
    const float loss = at_least(x[0], 0.0F) - x[0] * x[1] + x[2] * log_tail(x[0]);
    return std::abs(x[1] - ignored) > 1e-5F ? loss * scale : 0.0F;
  }
};
/// Its gradient: (w sigmoid(x) - y) / n. Labels within 1e-5 of the ignored one do not count.
struct WeightedLogisticSlope {
  static constexpr int kInputs = 5;
  float ignored;  ///< label whose elements do not count
  [[nodiscard]] constexpr float of(const float* x) const {
    const float scale = 1.0F / (x[3] == 0.0F ? 1e-5F : x[3]);
    const float slope = (x[2] * logistic(x[0]) - x[1]) * x[4];
    return std::abs(x[1] - ignored) > 1e-5F ? slope * scale : 0.0F;
  }
};

}  // namespace millrace::gpu
