#include <llvm/ADT/SetVector.h>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "transpiler/distribute/roles.h"
#include "transpiler/distribute/steps.h"

namespace millrace::transpiler {
namespace {

std::string_view view_collect_optimizers(llvm::StringRef s) {
  return {s.data(), s.size()};
}

// Ops that clip gradients. Their name scope tells: "gradient_clip@CLIP" in fluid 1.x,
// "gradient_clip" later.
bool clips_gradients(const Op& op, const DistributeTranspilerConfig& config) {
  const AttrValue* const scope = op.find_attr("op_namescope");
  if (scope == nullptr || scope->kind() != AttrKind::kString) return false;
  if (scope->string().contains("@CLIP")) return true;
  return config.clip_on_trainer && scope->string().contains("gradient_clip") &&
         !role::is_optimizer(op);
}

Status add_pair_collect_optimizers(const Block& block, DistributionJob& job, llvm::StringRef param,
                                   llvm::StringRef grad, const Op* op) {
  const Var* const param_var = block.find_var(param);
  const Var* const grad_var = block.find_var(grad);
  if (param_var == nullptr || grad_var == nullptr) {
    Status status = InvalidProgram("op_role_var names '{}', which block 0 does not declare",
                                   view_collect_optimizers(param_var == nullptr ? param : grad));
    return op == nullptr ? status : std::move(status).at(op->location());
  }
  ParamGrad pair;
  pair.param = param.str();
  pair.grad = pair.grad_on_trainer = grad.str();
  pair.param_kind = param_var->kind();
  pair.grad_kind = grad_var->kind();
  pair.dtype = param_var->dtype();
  pair.lod_level = param_var->lod_level();
  const auto index = static_cast<uint32_t>(job.pairs.size());
  job.pair_of_param[param] = index;
  job.pair_of_grad[grad] = index;
  job.pairs.push_back(std::move(pair));
  return Ok();
}

// Params that no optimizer op updates but that are to be distributed all the same: the attribute
// lists them.
Status add_listed_params(const Block& block, DistributionJob& job) {
  llvm::SmallSetVector<llvm::StringRef, 4> listed;
  for (const Op& op : block.ops()) {
    const AttrValue* const list = op.find_attr("distribute_update_vars");
    if (list == nullptr || list->kind() != AttrKind::kString || list->string().empty()) continue;
    llvm::SmallVector<llvm::StringRef, 4> names;
    list->string().split(names, ',');
    for (const llvm::StringRef name : names) {
      if (!listed.insert(name)) continue;
      if (block.find_var(name) == nullptr) {
        return InvalidProgram(
                   "attribute 'distribute_update_vars' names '{}', which block 0 does not declare",
                   view_collect_optimizers(name))
            .at(op.location());
      }
      if (job.pair_of_param.count(name) == 0) {
        return Unimplemented(
                   "attribute 'distribute_update_vars' names '{}', which has no gradient: its "
                   "update cannot be "
                   "divided between servers",
                   view_collect_optimizers(name))
            .at(op.location());
      }
    }
  }
  return Ok();
}

}  // namespace

Status collect_optimizers(Program& main, PassContext& context, DistributionJob& job) {
  (void)context;
  Block& block = main.root();
  for (Op& op : block.ops()) {
    if (!role::is_optimize_op(op)) continue;
    if (clips_gradients(op, job.config)) {
      op.set_int("op_role", role::kBackward);
      continue;
    }
    const llvm::ArrayRef<std::string> vars = role::vars(op);
    if (vars.empty() && !role::is_optimizer(op)) {
      return InvalidProgram(
                 "op_role_var of an optimize op is empty: which server runs it cannot be told")
          .at(op.location());
    }
    if (vars.size() < 2) {
      return InvalidProgram(
                 "op_role_var of an optimize op needs a param and its gradient (found {} names)",
                 vars.size())
          .at(op.location());
    }
    job.optimize_ops.push_back(&op);
    if (job.pair_of_param.count(vars[0]) > 0) continue;
    MILLRACE_RETURN_IF_ERROR(add_pair_collect_optimizers(block, job, vars[0], vars[1], &op));
  }
  job.ops_of_pair.resize(job.pairs.size());
  for (const Op* const op : job.optimize_ops) {
    job.ops_of_pair[job.pair_of_param.lookup(role::vars(*op)[0])].push_back(op);
  }
  return add_listed_params(block, job);
}

}  // namespace millrace::transpiler
