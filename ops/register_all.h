#pragma once

#include "ops/registry.h"

namespace millrace::ops {

/// Registers every op of this build, folder by folder.
void register_all(OpRegistry& registry);

/// One function per folder, in <folder>/register.cc. Each registers the ops defined in its folder.
void register_activation(OpRegistry& registry);
void register_collective(OpRegistry& registry);
void register_control_flow(OpRegistry& registry);
void register_detection(OpRegistry& registry);
void register_distributed(OpRegistry& registry);
void register_elementwise(OpRegistry& registry);
void register_embedding(OpRegistry& registry);
void register_feature(OpRegistry& registry);
void register_foreign(OpRegistry& registry);
void register_io(OpRegistry& registry);
void register_loss(OpRegistry& registry);
void register_math(OpRegistry& registry);
void register_metric(OpRegistry& registry);
void register_nn(OpRegistry& registry);
void register_optimizer(OpRegistry& registry);
void register_quant(OpRegistry& registry);
void register_random(OpRegistry& registry);
void register_reduce(OpRegistry& registry);
void register_rnn(OpRegistry& registry);
void register_sequence(OpRegistry& registry);
void register_tensor(OpRegistry& registry);
void register_vision(OpRegistry& registry);

}  // namespace millrace::ops
