#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/names.h"
#include "transpiler/distribute/emit.h"
#include "transpiler/distribute/federated_passes.h"
#include "transpiler/distribute/server_job.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

Status add_updated_param(const Op& op, DistributionJob& job) {
  const std::string param = op.first_output("ParamOut").str();
  const Var* const var = op.block().find_var(param);
  if (var == nullptr) {
    return InvalidProgram("the op updates {}, which block 0 does not declare", in_quotes(param))
        .at(op.location());
  }
  if (job.pair_of_param.count(param) != 0) return Ok();
  ParamGrad pair;
  pair.param = param;
  pair.grad = pair.grad_on_trainer = op.first_input("Grad").str();
  pair.param_kind = var->kind();
  pair.dtype = var->dtype();
  pair.lod_level = var->lod_level();
  PlacedSlice whole;
  whole.param = param;
  whole.slice.dims.assign(var->dims().begin(), var->dims().end());
  whole.slice.elems = element_count(var->dims()).value_or(0);
  pair.slices.push_back(std::move(whole));
  job.pair_of_param[param] = static_cast<uint32_t>(job.pairs.size());
  job.pairs.push_back(std::move(pair));
  return Ok();
}

void append_copy(Block& block, const DistributionJob& job, ParamGrad& pair) {
  PlacedSlice& placed = pair.slices.front();
  placed.grad = names::federated(pair.param, job.arguments.trainer_id);
  VarSpec spec = VarSpec::tensor(pair.dtype, placed.slice.dims);
  spec.kind = pair.param_kind;
  if (pair.lod_level != 0) spec.lod_level = pair.lod_level;
  spec.persistable = true;
  block.declare(placed.grad, std::move(spec));
  emit_scale(block, nullptr, pair.param, placed.grad, 1, role::kForward);
}

}  // namespace

Status federated_copy_params(Program& main, PassContext& context, DistributionJob& job) {
  Block& block = main.root();
  for (const Op& op : block.ops()) {
    if (!role::is_optimize_op(op)) continue;
    if (op.type() == "sgd") {
      MILLRACE_RETURN_IF_ERROR(add_updated_param(op, job));
    } else if (role::is_optimizer(op)) {
      context.remarks.push_back(fmt::format(
          "{} stays local: federated training sends only parameters that sgd updates, not {}",
          op.first_input("Param").str(), op.type().str()));
    }
  }
  MILLRACE_RETURN_IF_ERROR(place_in_order(main, job));
  for (ParamGrad& pair : job.pairs) append_copy(block, job, pair);
  return Ok();
}

}  // namespace millrace::transpiler
