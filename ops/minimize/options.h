#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "ops/minimize/methods.h"

/// What minimize() is asked for, in the words of the original. Plain values.
namespace millrace {

// ---- learning-rate schedules; s is the number of steps done, 0 in the first run

/// learning_rate * d_model^-0.5 * min(s^-0.5, s * warmup_steps^-1.5), s from 1
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

/// (learning_rate - end_learning_rate) * (1 - s / decay_steps)^power + end_learning_rate, s being
/// at most decay_steps; cycle: decay_steps grows by its own length whenever s passes it
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

/// Any of them.
using Decay = std::variant<NoamDecay, ExponentialDecay, NaturalExpDecay, InverseTimeDecay,
                           PolynomialDecay, PiecewiseDecay, CosineDecay>;

/// start_lr + (end_lr - start_lr) * s / warmup_steps while s < warmup_steps, the rate `after` then
struct LinearWarmup {
  std::variant<double, Decay> after = {};
  double warmup_steps = 0;
  double start_lr = 0;
  double end_lr = 0;
};

/// The rate is computed by ops that the program has already.
struct RateVar {
  std::string name = {};
};

/// The rate lies in a persistable var, as a constant does, and whoever runs the program gives it
/// the next value between steps (the scheduler objects of the original's 2.x).
struct SteppedRate {
  double initial = 0;
};

/// A constant, a schedule, or a var.
using LearningRate = std::variant<double, Decay, LinearWarmup, RateVar, SteppedRate>;

// ---- clipping of gradients

/// Every element into [min, max]; without min: [-max, max].
struct ClipByValue {
  double max = 0;
  std::optional<double> min = {};
};

/// Every gradient to a norm of at most clip_norm.
struct ClipByNorm {
  double clip_norm = 0;
};

/// All gradients of a group by one factor, so that the norm of them together is at most clip_norm.
struct ClipByGlobalNorm {
  double clip_norm = 0;
  std::string group_name = "default_group";  ///< matters where parameters have clips of their own
};

/// Any of them.
using GradientClip = std::variant<ClipByValue, ClipByNorm, ClipByGlobalNorm>;

/// Bounds that the gradient of an activation is cut to while it flows back.
struct ErrorClip {
  float min = 0;
  float max = 0;
};

// ---- regularisation

/// coeff * sign(p) joins the gradient.
struct L1Decay {
  double coeff = 0;
};

/// coeff * p joins the gradient.
struct L2Decay {
  double coeff = 0;
};

/// Either.
using Regularizer = std::variant<L1Decay, L2Decay>;

// ---- the whole

/// What holds for one parameter; a serialized program does not keep it.
struct ParameterOptions {
  double learning_rate = 1.0;                   ///< factor of the rate
  std::optional<Regularizer> regularizer = {};  ///< in place of the one of all parameters
  bool need_clip = true;                        ///< false: its gradient is left as it is
  /// In place of the one of all parameters. Parameters with the same group_name of a global norm
  /// are clipped together.
  std::optional<GradientClip> clip = {};
};

/// How a loss is to be minimized.
struct MinimizeOptions {
  UpdateMethod method = Sgd{};
  LearningRate learning_rate = 0.001;
  std::optional<GradientClip> clip = {};
  std::optional<Regularizer> regularization = {};
  /// Parameters to be trained, in order of creation. Empty: all that the program declares and
  /// no_grad does not name.
  std::vector<std::string> parameters = {};
  /// Vars through which no gradient flows, besides those that say stop_gradient.
  std::set<std::string> no_grad = {};
  std::map<std::string, ParameterOptions> parameter_options =
      {};                                             ///< by name; absent: the defaults
  std::map<std::string, ErrorClip> error_clips = {};  ///< by name of the activation
  /// Joins the names of the optimizer's vars: "w_<name>_moment_0". Empty: nothing.
  std::string name = {};
};

}  // namespace millrace
