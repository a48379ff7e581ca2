#include "ps/table/sparse_rule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <llvm/ADT/SmallVector.h>

#include "framework/base/errors.h"

namespace millrace::ps {
namespace {

using SparseRuleKind = SparseRuleOptions::Kind;

// Number of partial sums, which lets the compiler vectorize.
constexpr int kSums = 8;

float total(const float (&sums)[kSums]) {
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

}  // namespace

StatusOr<SparseRuleKind> parse_sparse_rule(std::string_view name) {
  if (name == "SparseNaiveSGDRule") return SparseRuleKind::kNaive;
  if (name == "SparseAdaGradSGDRule") return SparseRuleKind::kAdagrad;
  if (name == "StdAdaGradSGDRule") return SparseRuleKind::kStdAdagrad;
  if (name == "SparseAdamSGDRule") return SparseRuleKind::kAdam;
  if (name == "SparseSharedAdamSGDRule") return SparseRuleKind::kSharedAdam;
  return InvalidArgument("unknown sparse table rule '{}'", name);
}

SparseRule::SparseRule(SparseRuleOptions options, int dim)
    : options_(std::move(options)), dim_(dim) {}

int SparseRule::state_floats() const {
  if (options_.op != nullptr) return options_.op->state_floats(dim_);
  switch (options_.kind) {
    case SparseRuleKind::kNaive:
      return 0;
    case SparseRuleKind::kAdagrad:
      return 1;
    case SparseRuleKind::kStdAdagrad:
      return dim_;
    case SparseRuleKind::kAdam:
      return 2 * dim_ + 2;
    case SparseRuleKind::kSharedAdam:
      return 4;
  }
  return 0;
}

void SparseRule::init(float* weights, float* state, KeyedRandom& random, bool zero) const {
  const Initializer start{Initializer::Kind::kUniform, 0, -options_.initial_range,
                          options_.initial_range};
  if (zero) {
    std::fill_n(weights, dim_, 0.0F);
  } else {
    start.fill({weights, static_cast<size_t>(dim_)}, random);
  }
  init_state(state);
}

void SparseRule::init_state(float* state) const {
  if (options_.op != nullptr) return options_.op->init_state(state, dim_);
  const int count = state_floats();
  std::fill_n(state, count, 0.0F);
  if (options_.kind == SparseRuleKind::kAdam || options_.kind == SparseRuleKind::kSharedAdam) {
    state[count - 2] = options_.beta1;  // powers for the next step
    state[count - 1] = options_.beta2;
  }
}

Status SparseRule::update(float* weights, float* state, const float* grad, float show,
                          float rate) const {
  rate *= options_.learning_rate;
  llvm::SmallVector<float, 64> changed;
  if (options_.has_terms) {
    changed.resize(static_cast<size_t>(dim_));
    add_terms(weights, grad, changed.data());
    grad = changed.data();
  }
  if (options_.op != nullptr) return options_.op->update_row(dim_, weights, state, grad, rate);
  apply(weights, state, grad, show, rate);
  return Ok();
}

void SparseRule::add_terms(const float* weights, const float* grad, float* out) const {
  for (int i = 0; i < dim_; ++i) {
    const float w = weights[i];
    const float sign = w > 0 ? 1.0F : w < 0 ? -1.0F : 0.0F;
    const float clipped = std::min(std::max(grad[i], options_.clip_min), options_.clip_max);
    out[i] = clipped + (options_.l2 * w + options_.l1 * sign);
  }
}

void SparseRule::apply(float* weights, float* state, const float* grad, float show,
                       float rate) const {
  switch (options_.kind) {
    case SparseRuleKind::kNaive:
      return naive(weights, grad, rate);
    case SparseRuleKind::kAdagrad:
      return adagrad(weights, state, grad, show, rate);
    case SparseRuleKind::kStdAdagrad:
      return std_adagrad(weights, state, grad, show, rate);
    case SparseRuleKind::kAdam:
      return adam(weights, state, grad, rate);
    case SparseRuleKind::kSharedAdam:
      return shared_adam(weights, state, grad, rate);
  }
}

void SparseRule::naive(float* weights, const float* grad, float rate) const {
  const float low = options_.min_bound;
  const float high = options_.max_bound;
  for (int i = 0; i < dim_; ++i)
    weights[i] = std::min(std::max(weights[i] - rate * grad[i], low), high);
}

// One sum of squares for all weights of a row.
void SparseRule::adagrad(float* weights, float* state, const float* grad, float show,
                         float rate) const {
  const float low = options_.min_bound;
  const float high = options_.max_bound;
  const float start = options_.initial_g2sum;
  const float factor = rate * std::sqrt(start / (start + state[0])) / show;
  float sums[kSums] = {};
  int i = 0;
  for (; i + kSums <= dim_; i += kSums) {
    for (int k = 0; k < kSums; ++k) {
      const float g = grad[i + k];
      sums[k] += g * g;
      weights[i + k] = std::min(std::max(weights[i + k] - factor * g, low), high);
    }
  }
  for (; i < dim_; ++i) {
    sums[0] += grad[i] * grad[i];
    weights[i] = std::min(std::max(weights[i] - factor * grad[i], low), high);
  }
  state[0] += total(sums) / (show * show * static_cast<float>(dim_));
}

void SparseRule::std_adagrad(float* weights, float* state, const float* grad, float show,
                             float rate) const {
  const float low = options_.min_bound;
  const float high = options_.max_bound;
  const float start = options_.initial_g2sum;
  const float inverse = 1 / show;
  for (int i = 0; i < dim_; ++i) {
    const float g = grad[i] * inverse;
    const float step = rate * g * std::sqrt(start / (start + state[i]));
    weights[i] = std::min(std::max(weights[i] - step, low), high);
    state[i] += g * g;
  }
}

void SparseRule::adam(float* weights, float* state, const float* grad, float rate) const {
  const float low = options_.min_bound;
  const float high = options_.max_bound;
  const float b1 = options_.beta1;
  const float b2 = options_.beta2;
  float* const m = state;
  float* const v = state + dim_;
  float* const powers = state + 2 * dim_;
  const float correction = std::sqrt(1 - powers[1]);
  const float eps = options_.epsilon * (options_.corrects_epsilon ? correction : 1);
  const float step = rate * correction / (1 - powers[0]);
  for (int i = 0; i < dim_; ++i) {
    const float g = grad[i];
    m[i] = b1 * m[i] + (1 - b1) * g;
    v[i] = b2 * v[i] + (1 - b2) * g * g;
    weights[i] = std::min(std::max(weights[i] - step * m[i] / (std::sqrt(v[i]) + eps), low), high);
  }
  powers[0] *= b1;
  powers[1] *= b2;
}

// One pair of moments per row: the means of what kAdam would have for each weight.
void SparseRule::shared_adam(float* weights, float* state, const float* grad, float rate) const {
  const float low = options_.min_bound;
  const float high = options_.max_bound;
  const float b1 = options_.beta1;
  const float b2 = options_.beta2;
  const float step = rate * std::sqrt(1 - state[3]) / (1 - state[2]);
  float m_sum = 0;
  float v_sum = 0;
  for (int i = 0; i < dim_; ++i) {
    const float g = grad[i];
    const float m = b1 * state[0] + (1 - b1) * g;
    const float v = b2 * state[1] + (1 - b2) * g * g;
    weights[i] =
        std::min(std::max(weights[i] - step * m / (std::sqrt(v) + options_.epsilon), low), high);
    m_sum += m;
    v_sum += v;
  }
  state[0] = m_sum / static_cast<float>(dim_);
  state[1] = v_sum / static_cast<float>(dim_);
  state[2] *= b1;
  state[3] *= b2;
}

}  // namespace millrace::ps
