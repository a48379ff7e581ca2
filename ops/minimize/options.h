#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

/// Options of minimize(), with the names of the original.
namespace millrace {

// ---- optimizer methods: one struct per method, with its hyper-parameters as fields and the
// defaults of fluid 2.6.2. In formulas, p is the parameter, g its gradient and rate the learning
// rate.

/// p = p - rate * g
struct Sgd {};

/// v = momentum * v + g; p = p - rate * v
struct Momentum {
  double momentum = 0.9;
  bool use_nesterov = false;     ///< p = p - rate * (g + momentum * v)
  double rescale_grad = 1.0;     ///< the gradient is multiplied by it first
  bool fuse_l2 = false;          ///< L2 decay in the update op (2.x) instead of separate ops
  bool multi_precision = false;  ///< keep a float32 copy of half-precision parameters
};

/// Momentum with a separate rate per parameter, computed from the norms of parameter and gradient.
struct LarsMomentum {
  double momentum = 0.9;
  double lars_coeff = 0.001;
  double lars_weight_decay = 0.0005;
  double epsilon = 0.0;
  double rescale_grad = 1.0;
  /// Parameters whose names contain one of these strings have no weight decay.
  std::vector<std::string> exclude_from_weight_decay = {};
};

/// Rate divided by the square root of the sum of squared gradients.
struct Adagrad {
  double epsilon = 1e-6;
  double initial_accumulator_value = 0.0;
};

/// Adagrad whose sum decays (fluid 1.x).
struct DecayedAdagrad {
  double decay = 0.95;
  double epsilon = 1e-6;
};

/// Update from the ratio of running averages of squared updates and squared gradients.
struct Adadelta {
  double epsilon = 1e-6;
  double rho = 0.95;
};

/// Rate divided by the square root of a running average of squared gradients.
struct RmsProp {
  double rho = 0.95;
  double epsilon = 1e-6;
  double momentum = 0.0;
  bool centered = false;  ///< subtract the squared running average of the gradients
};

/// Update from bias-corrected running averages of the gradient and of its square.
struct Adam {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool lazy_mode = false;  ///< a sparse gradient updates only the rows that it holds
  bool multi_precision = false;
};

/// Adam with weight decay that is decoupled from the gradient.
struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  bool lazy_mode = false;
  bool multi_precision = false;
  /// Parameters whose names contain one of these strings have no weight decay.
  std::vector<std::string> exclude_from_weight_decay = {};
};

/// Adam with a decayed maximum of absolute gradients in place of the average of squares.
struct Adamax {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

/// Adam update scaled by the ratio of the norms of parameter and update.
struct Lamb {
  double lamb_weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  bool always_adapt = false;  ///< scale by the norms even without weight decay
  bool multi_precision = false;
  /// Parameters whose names contain one of these strings have no weight decay.
  std::vector<std::string> exclude_from_weight_decay = {};
};

/// FTRL, follow the regularized leader (fluid 1.x).
struct Ftrl {
  double l1 = 0.0;
  double l2 = 0.0;
  double lr_power = -0.5;
};

/// SGD with a clipped gradient and normally distributed noise (fluid 1.x).
struct Dpsgd {
  double clip = 0.9;
  double batch_size = 0.999;
  double sigma = 1e-8;
};

/// Any of these methods.
using UpdateMethod = std::variant<Sgd, Momentum, LarsMomentum, Adagrad, DecayedAdagrad, Adadelta,
                                  RmsProp, Adam, AdamW, Adamax, Lamb, Ftrl, Dpsgd>;

// ---- learning-rate schedules; s is the number of completed steps, 0 in the first step

/// learning_rate * d_model^-0.5 * min(s^-0.5, s * warmup_steps^-1.5), where s starts at 1
struct NoamDecay {
  double d_model = 0;
  double warmup_steps = 0;
  double learning_rate = 1.0;
};

/// learning_rate * decay_rate^(s / decay_steps); staircase: the quotient is rounded down
struct ExponentialDecay {
  double learning_rate = 0;
  double decay_steps = 0;
  double decay_rate = 0;
  bool staircase = false;
};

/// learning_rate * e^(-decay_rate * s / decay_steps)
struct NaturalExpDecay {
  double learning_rate = 0;
  double decay_steps = 0;
  double decay_rate = 0;
  bool staircase = false;
};

/// learning_rate / (1 + decay_rate * s / decay_steps)
struct InverseTimeDecay {
  double learning_rate = 0;
  double decay_steps = 0;
  double decay_rate = 0;
  bool staircase = false;
};

/// (learning_rate - end_learning_rate) * (1 - s / decay_steps)^power + end_learning_rate, where s
/// is limited to decay_steps; with cycle, decay_steps is instead rounded up to the next multiple of
/// itself that is at least s
struct PolynomialDecay {
  double learning_rate = 0;
  double decay_steps = 0;
  double end_learning_rate = 0.0001;
  double power = 1.0;
  bool cycle = false;
};

/// values[i] while s < boundaries[i], the last value afterwards
struct PiecewiseDecay {
  std::vector<double> boundaries = {};
  std::vector<double> values = {};  ///< one more than boundaries
};

/// learning_rate / 2 * (cos(floor(s / step_each_epoch) * pi / epochs) + 1)
struct CosineDecay {
  double learning_rate = 0;
  double step_each_epoch = 0;
  double epochs = 0;
};

/// Any of these schedules.
using Decay = std::variant<NoamDecay, ExponentialDecay, NaturalExpDecay, InverseTimeDecay,
                           PolynomialDecay, PiecewiseDecay, CosineDecay>;

/// start_lr + (end_lr - start_lr) * s / warmup_steps while s < warmup_steps, then `after`
struct LinearWarmup {
  std::variant<double, Decay> after = {};
  double warmup_steps = 0;
  double start_lr = 0;
  double end_lr = 0;
};

/// The rate is in a var of block 0 that ops of the program already compute.
struct RateVar {
  std::string name = {};
};

/// The rate is in a persistable var, like a constant rate. The caller that runs the program sets
/// its next value between steps (the scheduler objects of the original's 2.x).
struct SteppedRate {
  double initial = 0;
};

/// A constant, a schedule, or a var.
using LearningRate = std::variant<double, Decay, LinearWarmup, RateVar, SteppedRate>;

// ---- clipping of gradients

/// Clips every element to [min, max]; without min, to [-max, max].
struct ClipByValue {
  double max = 0;
  std::optional<double> min = {};
};

/// Scales each gradient down to a norm of at most clip_norm.
struct ClipByNorm {
  double clip_norm = 0;
};

/// Scales all gradients of a group down by one factor, so that their common norm is at most
/// clip_norm.
struct ClipByGlobalNorm {
  double clip_norm = 0;
  std::string group_name = "default_group";  ///< used if a parameter has its own clip
};

/// Any of these clips.
using GradientClip = std::variant<ClipByValue, ClipByNorm, ClipByGlobalNorm>;

/// Bounds to which the gradient of an activation is clipped during the backward pass.
struct ErrorClip {
  float min = 0;
  float max = 0;
};

// ---- regularization

/// Adds coeff * sign(p) to the gradient.
struct L1Decay {
  double coeff = 0;
};

/// Adds coeff * p to the gradient.
struct L2Decay {
  double coeff = 0;
};

/// Either of these.
using Regularizer = std::variant<L1Decay, L2Decay>;

// ---- all options

/// Options of one parameter; a serialized program does not keep them.
struct ParameterOptions {
  double learning_rate = 1.0;                   ///< factor of the common learning rate
  std::optional<Regularizer> regularizer = {};  ///< replaces MinimizeOptions::regularization
  bool need_clip = true;                        ///< false: the gradient is not clipped
  /// Replaces MinimizeOptions::clip. Parameters whose global norms have the same group_name are
  /// clipped together.
  std::optional<GradientClip> clip = {};
};

/// How a loss is to be minimized.
struct MinimizeOptions {
  UpdateMethod method = Sgd{};
  LearningRate learning_rate = 0.001;
  std::optional<GradientClip> clip = {};
  std::optional<Regularizer> regularization = {};
  /// Parameters to be trained, in order of creation. Empty: all that the program declares and
  /// that are not in no_grad.
  std::vector<std::string> parameters = {};
  /// Vars through which no gradient flows, in addition to those with stop_gradient set.
  std::set<std::string> no_grad = {};
  std::map<std::string, ParameterOptions> parameter_options =
      {};                                             ///< by parameter name; absent: defaults
  std::map<std::string, ErrorClip> error_clips = {};  ///< by name of the activation
  /// Part of the names of the optimizer's vars, as in "w_<name>_moment_0". Empty: no such part.
  std::string name = {};
};

}  // namespace millrace
