#pragma once

#include <vector>

#include "ops/minimize/options.h"

/// Options with which the training references are minimized, one set per loss.
namespace millrace::training {

using Options = std::vector<MinimizeOptions>;

Options sgd();
Options sgd_polynomial();
Options nesterov();
Options lamb_warmup();
Options adam_exponential();
Options sgd_inverse_time();
Options adam();
Options adagrad_l2();
Options adagrad_cosine();
Options ftrl();
Options adam_global_norm();
Options adamax_natural_exp();
Options momentum_piecewise();
Options adam_noam();
Options rmsprop();
Options sgd_clip_norm();
Options fused_momentum();
Options sgd_and_momentum();
Options centered_rmsprop();
Options lars();

}  // namespace millrace::training
