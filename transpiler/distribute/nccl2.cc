#include "transpiler/distribute/nccl2.h"

#include <algorithm>
#include <cctype>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/names.h"
#include "transpiler/distribute/endpoints.h"
#include "transpiler/distribute/nccl2_passes.h"
#include "transpiler/distribute/op_builder.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace nccl2 {
namespace {

void declare_id(Block& block, const std::string& name) {
  VarSpec spec = VarSpec::shapeless(VarKind::kRaw);
  spec.persistable = true;
  block.declare(name, std::move(spec));
}

Status check_hierarchy(const Nccl2Plan& plan) {
  const auto trainers = static_cast<int64_t>(plan.endpoints.size());
  if (plan.inter_nranks < 1) {
    return InvalidArgument(
        "hierarchical_allreduce_inter_nranks defaults to the number of local devices, but there "
        "are none");
  }
  if (trainers <= plan.inter_nranks) {
    return InvalidArgument(
        "hierarchical allreduce needs more trainers than hierarchical_allreduce_inter_nranks, "
        "found {} trainers and {} ranks per node",
        trainers, plan.inter_nranks);
  }
  if (trainers % plan.inter_nranks != 0) {
    return InvalidArgument(
        "the number of trainers, {}, is not a multiple of hierarchical_allreduce_inter_nranks, {}",
        trainers, plan.inter_nranks);
  }
  return Ok();
}

StatusOr<Nccl2Plan> make_plan(const DistributeTranspilerConfig& config,
                              const TranspileArguments& arguments) {
  const std::string& list = arguments.trainers;
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  if (!list.empty() && std::all_of(list.begin(), list.end(), is_digit)) {
    return InvalidArgument(
        "'trainers' is the number {}, but mode nccl2 needs the trainers' endpoints", list);
  }
  Nccl2Plan plan;
  MILLRACE_ASSIGN_OR_RETURN(plan.endpoints, split_endpoints(list, "trainers"));
  if (arguments.trainer_id < 0) {
    return InvalidArgument("trainer_id is {}, expected 0 or more", arguments.trainer_id);
  }
  if (config.nccl_comm_num < 1) {
    return InvalidArgument("nccl_comm_num is {}, expected 1 or more", config.nccl_comm_num);
  }
  plan.trainer_id = arguments.trainer_id;
  plan.communicators = config.nccl_comm_num;
  plan.hierarchical = config.use_hierarchical_allreduce;
  plan.inter_nranks = config.hierarchical_allreduce_inter_nranks;
  if (plan.hierarchical) {
    if (plan.inter_nranks <= 1) plan.inter_nranks = arguments.device_count;
    MILLRACE_RETURN_IF_ERROR(check_hierarchy(plan));
  }
  const auto others =
      other_endpoints(plan.endpoints, arguments.current_endpoint, arguments.trainer_id);
  if (!others.ok()) return others.status();
  return plan;
}

}  // namespace
}  // namespace nccl2

Status nccl2_generate_ids(Program& main, PassContext& context, Nccl2Plan& plan) {
  using namespace nccl2;
  (void)main;
  Block& block = context.startup->root();
  for (int64_t i = 0; i < plan.communicators; ++i) declare_id(block, names::nccl_id(i));
  for (int64_t i = 0; plan.hierarchical && i < plan.communicators; ++i) {
    declare_id(block, names::inter_nccl_id(i));
    declare_id(block, names::exter_nccl_id(i));
  }
  Op& op = block.append_op("gen_nccl_id").set_output("NCCLID", names::nccl_id(0));
  op.set_strings("trainers", plan.endpoints)
      .set_int("trainer_id", static_cast<int32_t>(plan.trainer_id))
      .set_int("nccl_comm_num", static_cast<int32_t>(plan.communicators))
      .set_bool("use_hierarchical_allreduce", plan.hierarchical)
      .set_int("hierarchical_allreduce_inter_nranks", static_cast<int32_t>(plan.inter_nranks));
  finish(op, role::kForward);
  return Ok();
}

StatusOr<RolePrograms> transpile_nccl2(const Program& main, const Program& startup,
                                       const DistributeTranspilerConfig& config,
                                       const TranspileArguments& arguments,
                                       const ops::OpRegistry& registry,
                                       ProgramProperties* properties,
                                       PassManagerOptions pass_options) {
  MILLRACE_ASSIGN_OR_RETURN(Nccl2Plan plan, nccl2::make_plan(config, arguments));
  RolePrograms out{main.clone(), startup.clone()};
  PassContext context(registry);
  context.startup = out.startup.get();
  context.job = &plan;
  pass_options.error_note = ErrorNote::kPass;
  MILLRACE_RETURN_IF_ERROR(
      run_distribution("nccl2-generate-ids", *out.main, context, pass_options).status());
  if (properties != nullptr) {
    *properties = ProgramProperties{};
    properties->trainers_endpoints = plan.endpoints;
    properties->nccl_comm_num = plan.communicators;
    properties->use_hierarchical_allreduce = plan.hierarchical;
    if (plan.hierarchical) properties->hierarchical_allreduce_inter_nranks = plan.inter_nranks;
  }
  return out;
}

}  // namespace millrace::transpiler
