#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Ops that update one parameter from its gradient, and those that update a list of them. All are
/// in place: ParamOut is Param, and so on with each state.
void add_update_ops(OpRegistry& registry);
void add_adam_ops(OpRegistry& registry);
void add_merged_update_ops(OpRegistry& registry);
/// Loss scaling for training in half precision.
OpDef check_finite_and_unscale();
OpDef update_loss_scaling();

}  // namespace millrace::ops
