#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>

#include "framework/base/status.h"
#include "ps/table/initializer.h"
#include "ps/table/update_op.h"

namespace millrace::ps {

/// Determines how a gradient changes the weights of a row. Defaults are those of the original
/// (spec/ps_runtime.md section 7).
struct SparseRuleOptions {
  enum class Kind : uint8_t { kNaive, kAdagrad, kStdAdagrad, kAdam, kSharedAdam };
  Kind kind = Kind::kAdagrad;
  float learning_rate = 0.05F;
  float initial_range = 1e-4F;  ///< initial weights are uniform in +-this, or 0
  float min_bound = -3.4e38F;   ///< weights are clipped to [min_bound, max_bound]
  float max_bound = 3.4e38F;
  float initial_g2sum = 3.0F;  ///< for kAdagrad and kStdAdagrad
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  /// kAdam: applies bias correction to epsilon as to the moments, like the op adam; the original's
  /// rule does not.
  bool corrects_epsilon = false;
  /// If set, updates with this op of a program in place of the kind; bounds and show have no
  /// effect.
  std::shared_ptr<const UpdateOp> op = nullptr;
  /// The gradient is clipped to [clip_min, clip_max], then l1 times the sign of the weight and l2
  /// times the weight are added, before the rule uses it.
  bool has_terms = false;
  float clip_min = -std::numeric_limits<float>::infinity();
  float clip_max = std::numeric_limits<float>::infinity();
  float l1 = 0;
  float l2 = 0;
};

/// "SparseNaiveSGDRule", "SparseAdaGradSGDRule", "StdAdaGradSGDRule", "SparseAdamSGDRule",
/// "SparseSharedAdamSGDRule". Errors: kInvalidArgument.
StatusOr<SparseRuleOptions::Kind> parse_sparse_rule(std::string_view name);

/// An update rule for a fixed number of weights.
///
/// Thread-safety: immutable.
class SparseRule {
 public:
  SparseRule(SparseRuleOptions options, int dim);

  [[nodiscard]] const SparseRuleOptions& options() const { return options_; }
  [[nodiscard]] int dim() const { return dim_; }
  /// Floats of state for the weights of a row.
  [[nodiscard]] int state_floats() const;
  /// Initializes weights and state. \param zero  set the weights to 0
  void init(float* weights, float* state, KeyedRandom& random, bool zero) const;
  /// Initializes only the state.
  void init_state(float* state) const;
  /// Applies one gradient. \param show  divisor of the gradient (kAdagrad and kStdAdagrad)
  /// \param rate  factor for the learning rate
  /// Errors: those of UpdateOp; never without one.
  Status update(float* weights, float* state, const float* grad, float show, float rate) const;

 private:
  void add_terms(const float* weights, const float* grad, float* out) const;
  void apply(float* weights, float* state, const float* grad, float show, float rate) const;
  void naive(float* weights, const float* grad, float rate) const;
  void adagrad(float* weights, float* state, const float* grad, float show, float rate) const;
  void std_adagrad(float* weights, float* state, const float* grad, float show, float rate) const;
  void adam(float* weights, float* state, const float* grad, float rate) const;
  void shared_adam(float* weights, float* state, const float* grad, float rate) const;

  SparseRuleOptions options_;
  int dim_;
};

}  // namespace millrace::ps
