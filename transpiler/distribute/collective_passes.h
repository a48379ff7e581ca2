#pragma once

#include "framework/base/status.h"
#include "transpiler/distribute/collective_plan.h"
#include "transpiler/pass.h"
#include "transpiler/pass_registry.h"

/// What the passes of collective mode do (JobPass).
namespace millrace::transpiler {

/// Startup: a c_gen_nccl_id and c_comm_init per ring, only if the plan has local devices. One
/// process with several devices: c_comm_init_all on one machine; on several a c_gen_nccl_id and
/// c_comm_init_multitrainer, if the plan has local devices.
Status init_communicators(Program& main, PassContext& context, CollectivePlan& plan);
/// Startup: every parameter takes the value of rank 0, so that all trainers start with equal
/// values.
Status broadcast_parameters(Program& main, PassContext& context, CollectivePlan& plan);
/// Startup: <p>@SNAPSHOT, a copy of each parameter.
Status snapshot_parameters(Program& main, PassContext& context, CollectivePlan& plan);
/// Main: adds c_allreduce_sum after each backward op that computes the gradient of a parameter.
Status allreduce_gradients(Program& main, PassContext& context, CollectivePlan& plan);
/// Main: one allreduce for all gradients, over one buffer (fuse_allreduce 1) or a list (2).
Status allreduce_fused(Program& main, PassContext& context, CollectivePlan& plan);
/// Main: applies to each parameter the mean of the changes that the ranks computed.
Status average_updates(Program& main, PassContext& context, CollectivePlan& plan);

/// Adds the pass "collective-scale-loss-gradient". Main: multiplies every gradient of a loss by the
/// option `factor`, so that sums over ranks become means. It works without a plan.
void register_scale_loss_gradient(PassRegistry& registry);

}  // namespace millrace::transpiler
