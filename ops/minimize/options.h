#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "ops/minimize/methods.h"

/// Options of minimize(), with the names of the original.
namespace millrace {

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

// ---- regularisation

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
