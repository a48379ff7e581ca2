#include "transpiler/distribute/server_job.h"

#include <llvm/ADT/StringSet.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "transpiler/distribute/dispatcher.h"
#include "transpiler/distribute/endpoints.h"
#include "transpiler/distribute/optimizer_state.h"
#include "transpiler/distribute/pserver_mode.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace server_job {
namespace {

bool is_clip(const Op& op) {
  const AttrValue* const scope = op.find_attr("op_namescope");
  return scope != nullptr && scope->kind() == AttrKind::kString &&
         scope->string().contains("@CLIP");
}

Status add_pair(const Op& op, const std::string& param, const std::string& grad,
                DistributionJob& job) {
  const Block& block = op.block();
  for (const std::string& name : {param, grad}) {
    if (block.find_var(name) == nullptr) {
      return InvalidProgram("op_role_var names {}, which block 0 does not declare", in_quotes(name))
          .at(op.location());
    }
  }
  ParamGrad pair;
  pair.param = param;
  pair.grad = pair.grad_on_trainer = grad;
  pair.param_kind = block.find_var(param)->kind();
  pair.grad_kind = block.find_var(grad)->kind();
  pair.dtype = block.find_var(param)->dtype();
  pair.lod_level = block.find_var(param)->lod_level();
  job.add_pair(std::move(pair));
  return Ok();
}

}  // namespace
}  // namespace server_job

Status set_up_job(const DistributeTranspilerConfig& config, const TranspileArguments& arguments,
                  DistributionJob& job) {
  MILLRACE_RETURN_IF_ERROR(check_config(config));
  job.config = config;
  job.arguments = arguments;
  MILLRACE_ASSIGN_OR_RETURN(job.endpoints, split_endpoints(arguments.pservers, "pservers"));
  MILLRACE_ASSIGN_OR_RETURN(job.trainers, parse_trainer_count(arguments.trainers));
  if (arguments.trainer_id < 0 || arguments.trainer_id >= job.trainers) {
    return InvalidArgument("trainer_id must be in 0..{} (found {})", job.trainers - 1,
                           arguments.trainer_id);
  }
  return Ok();
}

Status collect_pairs(Program& main, DistributionJob& job) {
  using namespace server_job;
  // There may also be averages of other vars (statistics of batch_norm), which no op updates.
  llvm::StringSet<> updated;
  for (const Op& op : main.root().ops()) {
    if (role::is_optimizer(op)) updated.insert(op.first_input("Param"));
  }
  for (Op& op : main.root().ops()) {
    if (!role::is_optimize_op(op)) continue;
    if (is_clip(op)) {
      op.set_int("op_role", role::kBackward);
      continue;
    }
    const llvm::ArrayRef<std::string> names = role::vars(op);
    if (names.empty()) continue;
    if (names.size() < 2) {
      return InvalidProgram("op_role_var has 1 name, expected a parameter and its gradient")
          .at(op.location());
    }
    if (updated.count(names[0]) == 0 || job.pair_of_param.count(names[0]) != 0) continue;
    MILLRACE_RETURN_IF_ERROR(add_pair(op, names[0], names[1], job));
  }
  return Ok();
}

Status place_in_order(const Program& main, DistributionJob& job) {
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Dispatcher> dispatcher,
                            make_dispatcher(job.config.split_method, job.endpoints.size()));
  std::vector<Placeable> slices;
  std::vector<OwnedSlice> which;
  for (uint32_t p = 0; p < job.pairs.size(); ++p) {
    const ParamGrad& pair = job.pairs[p];
    for (uint32_t s = 0; s < pair.slices.size(); ++s) {
      const PlacedSlice& placed = pair.slices[s];
      // Servers add one value per element, whatever the trainer's optimizer is.
      slices.push_back({.name = placed.param,
                        .variable = p,
                        .bytes = placed.slice.elems * dtype_size(pair.dtype),
                        .work = static_cast<double>(placed.slice.elems)});
      which.push_back({.pair = p, .slice = s});
    }
  }
  job.place(*dispatcher, slices, which);
  const Block& block = main.root();
  for (const OwnedSlice& slice : which) {
    const ParamGrad& pair = job.pairs[slice.pair];
    const PlacedSlice& placed = pair.slices[slice.slice];
    job.overview.add_distributed_var(
        {.origin = facts_of(*block.find_var(pair.param)),
         .slice = facts_of(*block.find_var(placed.param)),
         .is_slice = pair.is_sliced(),
         .block_id = slice.slice,
         .offset = placed.slice.offset,
         .vtype = "Param",
         .endpoint = job.endpoints[static_cast<size_t>(placed.endpoint)]});
  }
  return Ok();
}

ProgramProperties job_properties(const DistributionJob& job) {
  ProgramProperties out;
  out.is_distributed = true;
  out.is_chief = job.arguments.trainer_id == 0;
  out.ps_endpoint = job.arguments.current_endpoint;
  out.endpoints = job.endpoints;
  out.distributed_lookup_table = job.table.param;
  return out;
}

}  // namespace millrace::transpiler
