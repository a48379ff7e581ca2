#include <array>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SetVector.h>
#include <llvm/ADT/StringExtras.h>

#include "framework/base/errors.h"
#include "transpiler/distribute/divide_updates.h"
#include "transpiler/distribute/pserver_passes.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace collect_optimizers_parts {
namespace {

std::string_view view(llvm::StringRef s) {
  return {s.data(), s.size()};
}

// The names of slices and per-trainer copies have this form; readers of plans rely on it.
bool looks_generated(llvm::StringRef name) {
  constexpr std::array<llvm::StringLiteral, 3> kMarks = {".block", ".trainer_", ".pserver_"};
  return llvm::any_of(kMarks, [&](llvm::StringRef mark) {
    for (size_t at = name.find(mark); at != llvm::StringRef::npos; at = name.find(mark, at + 1)) {
      const llvm::StringRef rest = name.drop_front(at + mark.size());
      if (!rest.empty() && llvm::isDigit(rest.front())) return true;
    }
    return false;
  });
}

// If the ops that compute the sent gradient produce selected rows, it is declared as such, whatever
// the program declares.
void declare_kind(Var& var, VarKind kind) {
  if (kind != VarKind::kSelectedRows || var.kind() == kind) return;
  VarSpec spec = var.spec();
  spec.kind = kind;
  spec.form = TensorForm::kSelectedRows;
  spec.lod_level.reset();
  var.set_spec(std::move(spec));
}

Status add_pair(const Block& block, DistributionJob& job, llvm::StringRef param,
                const UpdateFlow& flow) {
  const llvm::StringRef grad = flow.gradient;
  const Var* const param_var = block.find_var(param);
  Var* const grad_var = block.find_var(grad);
  if (param_var == nullptr || grad_var == nullptr) {
    return InvalidProgram("the update needs '{}', which block 0 does not declare",
                          view(param_var == nullptr ? param : grad))
        .at(flow.update->location());
  }
  for (const llvm::StringRef name : {param, grad}) {
    if (!looks_generated(name)) continue;
    return Unimplemented(
               "the name '{}' has the form of a slice or of a trainer's copy ('w.block1', "
               "'w.trainer_0'); these names are reserved for distribution",
               view(name))
        .at(flow.update->location())
        .with_hint("rename the var: --passes 'rename{...}'");
  }
  if (job.config.enable_dc_asgd && flow.kind == VarKind::kSelectedRows) {
    return Unimplemented(
               "enable_dc_asgd: param '{}' has a sparse gradient, but delay compensation needs a "
               "dense one",
               view(param))
        .at(flow.update->location());
  }
  declare_kind(*grad_var, flow.kind);
  ParamGrad pair;
  pair.param = param.str();
  pair.grad = pair.grad_on_trainer = grad.str();
  pair.has_server_ops = flow.has_server_ops;
  pair.param_kind = param_var->kind();
  pair.grad_kind = grad_var->kind();
  pair.dtype = param_var->dtype();
  pair.lod_level = param_var->lod_level();
  job.add_pair(std::move(pair));
  return Ok();
}

// Turns the op into a backward op. Its op_role_var is removed, because it lists gradients that
// other passes would exchange; the original keeps op_role_var on ops of its own scope.
void keep_on_trainer(Op& op) {
  op.set_int("op_role", role::kBackward);
  const AttrValue* const scope = op.find_attr("op_namescope");
  const bool marked =
      scope != nullptr && scope->kind() == AttrKind::kString && scope->string().contains("@CLIP");
  if (!marked) op.remove_attr("op_role_var");
}

// Adds params that no optimizer op updates but that an attribute lists for distribution.
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
                   view(name))
            .at(op.location());
      }
      if (job.pair_of_param.count(name) == 0) {
        return Unimplemented(
                   "attribute 'distribute_update_vars' names '{}', which has no gradient: its "
                   "update cannot be "
                   "divided between servers",
                   view(name))
            .at(op.location());
      }
    }
  }
  return Ok();
}

}  // namespace
}  // namespace collect_optimizers_parts

Status collect_optimizers(Program& main, PassContext& context, DistributionJob& job) {
  using namespace collect_optimizers_parts;
  (void)context;
  Block& block = main.root();
  MILLRACE_ASSIGN_OR_RETURN(const OptimizePart part,
                            divide_updates(block, {.clip_on_trainer = job.config.clip_on_trainer}));
  for (Op* const op : part.trainer) keep_on_trainer(*op);
  for (const ServerOp& server : part.server) {
    job.optimize_ops.push_back(server.op);
    const auto known = job.pair_of_param.find(server.param);
    if (known == job.pair_of_param.end()) {
      MILLRACE_RETURN_IF_ERROR(
          add_pair(block, job, server.param, part.updates.find(server.param)->second));
      job.ops_of_pair.emplace_back();
    }
    job.ops_of_pair[job.pair_of_param.lookup(server.param)].push_back(server.op);
  }
  return add_listed_params(block, job);
}

}  // namespace millrace::transpiler
