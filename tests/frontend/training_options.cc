#include "tests/frontend/training_options.h"

namespace millrace::training {

Options sgd() {
  return {{.method = Sgd{}, .learning_rate = 0.05}};
}

Options sgd_polynomial() {
  return {{.method = Sgd{},
           .learning_rate = Decay(PolynomialDecay{.learning_rate = 0.1,
                                                  .decay_steps = 4,
                                                  .end_learning_rate = 0.01,
                                                  .power = 2.0,
                                                  .cycle = true}),
           .regularization = L1Decay{0.01}}};
}

Options nesterov() {
  return {{.method = Momentum{.momentum = 0.9, .use_nesterov = true},
           .learning_rate = 0.05,
           .clip = ClipByValue{.max = 0.02},
           .regularization = L2Decay{1e-2}}};
}

Options lamb_warmup() {
  return {{.method = Lamb{.lamb_weight_decay = 0.01},
           .learning_rate =
               LinearWarmup{.after = 0.05, .warmup_steps = 4, .start_lr = 0.0, .end_lr = 0.05}}};
}

Options adam_exponential() {
  return {{.method = Adam{.epsilon = 1e-4},
           .learning_rate = Decay(ExponentialDecay{
               .learning_rate = 0.01, .decay_steps = 3, .decay_rate = 0.5, .staircase = true})}};
}

Options sgd_inverse_time() {
  return {{.method = Sgd{},
           .learning_rate =
               Decay(InverseTimeDecay{.learning_rate = 0.8, .decay_steps = 5, .decay_rate = 0.5})}};
}

Options adam() {
  return {{.method = Adam{.epsilon = 1e-4}, .learning_rate = 0.01}};
}

Options adagrad_l2() {
  return {{.method = Adagrad{.initial_accumulator_value = 0.1},
           .learning_rate = 0.1,
           .regularization = L2Decay{1e-3}}};
}

Options adagrad_cosine() {
  return {{.method = Adagrad{.initial_accumulator_value = 0.05},
           .learning_rate =
               Decay(CosineDecay{.learning_rate = 0.1, .step_each_epoch = 2, .epochs = 5})}};
}

Options ftrl() {
  return {{.method = Ftrl{.l1 = 1e-3, .l2 = 1e-2}, .learning_rate = 0.1}};
}

Options adam_global_norm() {
  return {{.method = Adam{.epsilon = 1e-4},
           .learning_rate = 0.02,
           .clip = ClipByGlobalNorm{.clip_norm = 0.2}}};
}

Options adamax_natural_exp() {
  return {{.method = Adamax{.epsilon = 1e-4},
           .learning_rate =
               Decay(NaturalExpDecay{.learning_rate = 0.02, .decay_steps = 4, .decay_rate = 0.5})}};
}

Options momentum_piecewise() {
  return {
      {.method = Momentum{.momentum = 0.9},
       .learning_rate = Decay(PiecewiseDecay{.boundaries = {3, 6}, .values = {0.1, 0.05, 0.01}}),
       .regularization = L2Decay{1e-3}}};
}

Options adam_noam() {
  return {
      {.method = Adam{.beta1 = 0.9, .beta2 = 0.98, .epsilon = 1e-4},
       .learning_rate = Decay(NoamDecay{.d_model = 16, .warmup_steps = 5, .learning_rate = 0.2})}};
}

Options rmsprop() {
  return {
      {.method = RmsProp{.rho = 0.9, .epsilon = 1e-3, .momentum = 0.5}, .learning_rate = 0.005}};
}

Options sgd_clip_norm() {
  return {{.method = Sgd{}, .learning_rate = 0.1, .clip = ClipByNorm{.clip_norm = 0.5}}};
}

Options fused_momentum() {
  return {{.method = Momentum{.momentum = 0.9, .fuse_l2 = true},
           .learning_rate = 0.05,
           .regularization = L2Decay{1e-2},
           .no_grad = {"fc_3.tmp_1"}}};
}

Options sgd_and_momentum() {
  return {{.method = Sgd{},
           .learning_rate = 0.1,
           .parameters = {"trunk.w_0", "trunk.b_0", "cls.w_0", "cls.b_0"}},
          {.method = Momentum{.momentum = 0.5},
           .learning_rate = 0.02,
           .parameters = {"trunk.w_0", "reg.w_0", "reg.b_0"}}};
}

Options centered_rmsprop() {
  return {{.method = RmsProp{.rho = 0.9, .epsilon = 1e-3, .centered = true},
           .learning_rate = 0.01,
           .error_clips = {{"fc_0.tmp_2", {.min = -0.01F, .max = 0.02F}}}}};
}

Options lars() {
  return {{.method =
               LarsMomentum{
                   .momentum = 0.9, .lars_coeff = 0.01, .lars_weight_decay = 5e-4, .epsilon = 1e-6},
           .learning_rate = 0.2}};
}

}  // namespace millrace::training
