#include "kernels/register_all.h"

namespace millrace::kernels {

std::unique_ptr<KernelRegistry> standard_kernels() {
  auto registry = std::make_unique<KernelRegistry>();
  add_activation_kernels(*registry);
  add_collective_kernels(*registry);
  add_control_flow_kernels(*registry);
  add_detection_kernels(*registry);
  add_distributed_kernels(*registry);
  add_elementwise_kernels(*registry);
  add_embedding_kernels(*registry);
  add_feature_kernels(*registry);
  add_loss_kernels(*registry);
  add_math_kernels(*registry);
  add_metric_kernels(*registry);
  add_nn_kernels(*registry);
  add_optimizer_kernels(*registry);
  add_quant_kernels(*registry);
  add_random_kernels(*registry);
  add_reduce_kernels(*registry);
  add_rnn_kernels(*registry);
  add_sequence_kernels(*registry);
  add_tensor_kernels(*registry);
  add_vision_kernels(*registry);
  return registry;
}

}  // namespace millrace::kernels
