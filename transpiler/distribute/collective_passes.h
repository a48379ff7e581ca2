#pragma once

#include <memory>

#include "transpiler/distribute/collective_plan.h"
#include "transpiler/pass.h"

/// The passes of collective mode. The plan must outlive the pass.
namespace millrace::transpiler {

/// Startup: a c_gen_nccl_id and c_comm_init per ring, only if the plan has local devices.
std::unique_ptr<Pass> init_communicators(const CollectivePlan& plan);
/// Startup of one process with several devices: c_comm_init_all on one machine; on several a
/// c_gen_nccl_id and c_comm_init_multitrainer, if the plan has local devices.
std::unique_ptr<Pass> init_device_communicators(const CollectivePlan& plan);
/// Startup: every parameter takes the value of rank 0, so that all trainers start with equal
/// values.
std::unique_ptr<Pass> broadcast_parameters(const CollectivePlan& plan);
/// Startup: <p>@SNAPSHOT, a copy of each parameter.
std::unique_ptr<Pass> snapshot_parameters(const CollectivePlan& plan);
/// Main: multiplies every gradient of a loss by `factor`, so that sums over ranks become means.
std::unique_ptr<Pass> scale_loss_gradient(double factor);
/// Main: adds c_allreduce_sum after each backward op that computes the gradient of a parameter.
std::unique_ptr<Pass> allreduce_gradients(const CollectivePlan& plan);
/// Main: one allreduce for all gradients, over one buffer (fuse_allreduce 1) or a list (2).
std::unique_ptr<Pass> allreduce_fused(const CollectivePlan& plan);
/// Main: applies to each parameter the mean of the changes that the ranks computed.
std::unique_ptr<Pass> average_updates(const CollectivePlan& plan);

}  // namespace millrace::transpiler
