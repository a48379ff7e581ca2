#include "ops/register_all.h"

namespace millrace::ops {

void register_all(OpRegistry& registry) {
  register_activation(registry);
  register_collective(registry);
  register_control_flow(registry);
  register_detection(registry);
  register_distributed(registry);
  register_elementwise(registry);
  register_embedding(registry);
  register_feature(registry);
  register_foreign(registry);
  register_io(registry);
  register_loss(registry);
  register_math(registry);
  register_metric(registry);
  register_nn(registry);
  register_optimizer(registry);
  register_quant(registry);
  register_random(registry);
  register_reduce(registry);
  register_rnn(registry);
  register_sequence(registry);
  register_tensor(registry);
  register_vision(registry);
}

}  // namespace millrace::ops
