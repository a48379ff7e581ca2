#pragma once

#include <string>
#include <variant>
#include <vector>

/// Optimizer methods: one struct per method, with its hyper-parameters as fields and the defaults
/// of fluid 2.6.2. In formulas, p is the parameter, g its gradient and rate the learning rate.
namespace millrace {

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

/// FTRL, follow the regularised leader (fluid 1.x).
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

}  // namespace millrace
