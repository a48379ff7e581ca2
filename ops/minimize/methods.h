#pragma once

#include <string>
#include <variant>
#include <vector>

/// How an optimizer turns a gradient into a step: one struct a method, its hyper-parameters as
/// fields with the defaults of fluid 2.6.2. Plain values.
namespace millrace {

/// p - rate * g
struct Sgd {};

/// v = momentum * v + g; p - rate * v
struct Momentum {
  double momentum = 0.9;
  bool use_nesterov = false;     ///< step along g + momentum * v
  double rescale_grad = 1.0;     ///< factor of the gradient before anything else
  bool fuse_l2 = false;          ///< L2 decay inside the update op (2.x) instead of ops of its own
  bool multi_precision = false;  ///< half-precision parameters keep a copy in single precision
};

/// Momentum with a rate for each layer, from the norms of parameter and gradient.
struct LarsMomentum {
  double momentum = 0.9;
  double lars_coeff = 0.001;
  double lars_weight_decay = 0.0005;
  double epsilon = 0.0;
  double rescale_grad = 1.0;
  /// Parameters whose names have one of these parts are not decayed.
  std::vector<std::string> exclude_from_weight_decay = {};
};

/// Rate over the root of the sum of squared gradients.
struct Adagrad {
  double epsilon = 1e-6;
  double initial_accumulator_value = 0.0;
};

/// Adagrad whose sum decays (fluid 1.x).
struct DecayedAdagrad {
  double decay = 0.95;
  double epsilon = 1e-6;
};

/// Step from the ratio of running averages of steps and gradients.
struct Adadelta {
  double epsilon = 1e-6;
  double rho = 0.95;
};

/// Rate over the root of a running average of squared gradients.
struct RmsProp {
  double rho = 0.95;
  double epsilon = 1e-6;
  double momentum = 0.0;
  bool centered = false;  ///< subtract the squared average of the gradients
};

/// Step from bias-corrected running averages of the gradient and of its square.
struct Adam {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool lazy_mode = false;  ///< a sparse gradient touches its own rows only
  bool multi_precision = false;
};

/// Adam whose decay is apart from the gradient.
struct AdamW {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  bool lazy_mode = false;
  bool multi_precision = false;
  /// Parameters whose names have one of these parts are not decayed.
  std::vector<std::string> exclude_from_weight_decay = {};
};

/// Adam with the largest gradient in place of the second average.
struct Adamax {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

/// Adam step scaled by the norms of parameter and step.
struct Lamb {
  double lamb_weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  bool always_adapt = false;  ///< scale by the norms even without decay
  bool multi_precision = false;
  /// Parameters whose names have one of these parts are not decayed.
  std::vector<std::string> exclude_from_weight_decay = {};
};

/// Follow the regularised leader (fluid 1.x).
struct Ftrl {
  double l1 = 0.0;
  double l2 = 0.0;
  double lr_power = -0.5;
};

/// Sgd with a clipped gradient and normal noise (fluid 1.x).
struct Dpsgd {
  double clip = 0.9;
  double batch_size = 0.999;
  double sigma = 1e-8;
};

/// Any of them.
using UpdateMethod = std::variant<Sgd, Momentum, LarsMomentum, Adagrad, DecayedAdagrad, Adadelta,
                                  RmsProp, Adam, AdamW, Adamax, Lamb, Ftrl, Dpsgd>;

}  // namespace millrace
