#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Ops that update one parameter from its gradient, and ops that update a list of parameters. All
/// work in place: ParamOut is the var of Param, and likewise for each state.
void add_update_ops(OpRegistry& registry);
void add_adam_ops(OpRegistry& registry);
void add_merged_update_ops(OpRegistry& registry);
/// Loss scaling for training in half precision.
OpDef check_finite_and_unscale();
OpDef update_loss_scaling();

}  // namespace millrace::ops
