#include "framework/base/errors.h"
#include "framework/names.h"
#include "transpiler/distribute/pserver_passes.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

VarSpec slice_spec(const Var& whole, llvm::ArrayRef<int64_t> dims) {
  VarSpec spec = VarSpec::tensor(whole.dtype(), dims);
  spec.kind = whole.kind();
  if (spec.kind == VarKind::kSelectedRows) spec.form = TensorForm::kSelectedRows;
  return spec;
}

// Fills the slices of one pair and declares the slices.
Status slice_pair(Block& block, DistributionJob& job, ParamGrad& pair, bool trainer_suffix) {
  const int64_t most = job.config.slice_var_up ? static_cast<int64_t>(job.endpoints.size()) : 1;
  const Var& param = *block.find_var(pair.param);
  const Var& grad = *block.find_var(pair.grad);
  auto slices = [&](const Var& var) -> StatusOr<std::vector<Slice>> {
    StatusOr<std::vector<Slice>> result =
        slice_variable(var.dims(), most, job.config.min_block_size);
    if (result.ok()) return result;
    Location where;
    where.block = 0;
    where.var = var.name().str();
    return std::move(result).status().at(std::move(where));
  };
  MILLRACE_ASSIGN_OR_RETURN(std::vector<Slice> param_slices, slices(param));
  MILLRACE_ASSIGN_OR_RETURN(std::vector<Slice> grad_slices, slices(grad));
  if (param_slices.size() != grad_slices.size()) {
    return InvalidProgram("param '{}' is split into {} slices but its gradient '{}' into {}",
                          pair.param, param_slices.size(), pair.grad, grad_slices.size());
  }
  const bool cut = param_slices.size() > 1;
  const int64_t trainer = job.arguments.trainer_id;
  pair.slices.reserve(param_slices.size());
  for (size_t i = 0; i < param_slices.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    PlacedSlice placed;
    placed.grad_dims = std::move(grad_slices[i].dims);
    placed.slice = std::move(param_slices[i]);
    placed.param = cut ? names::block(pair.param, number) : pair.param;
    placed.server_grad = cut ? names::block(pair.grad, number) : pair.grad;
    placed.grad = trainer_suffix ? (cut ? names::trainer_block(pair.grad, number, trainer)
                                        : names::trainer(pair.grad, trainer))
                                 : placed.server_grad;
    if (cut) {
      block.declare(placed.param, slice_spec(param, placed.slice.dims));
      block.declare(placed.grad, slice_spec(grad, placed.grad_dims));
    }
    pair.slices.push_back(std::move(placed));
  }
  if (!cut) pair.grad_on_trainer = pair.slices[0].grad;
  return Ok();
}

// Rewrites op_role_var of all ops after renaming; one pass for all renamed gradients.
void rename_role_vars(Block& block, const DistributionJob& job) {
  for (Op& op : block.ops()) {
    const llvm::ArrayRef<std::string> vars = role::vars(op);
    const auto new_name = [&](const std::string& name) -> const std::string* {
      const auto it = job.pair_of_grad.find(name);
      if (it == job.pair_of_grad.end()) return nullptr;
      const ParamGrad& pair = job.pairs[it->second];
      return pair.grad == name && pair.grad_on_trainer != name ? &pair.grad_on_trainer : nullptr;
    };
    if (llvm::none_of(vars, new_name)) continue;
    std::vector<std::string> renamed;
    for (const std::string& name : vars) {
      const std::string* const to = new_name(name);
      renamed.push_back(to == nullptr ? name : *to);
    }
    op.set_strings("op_role_var", std::move(renamed));
  }
}

// The gradient of a distributed table goes to every server, by id.
void declare_table_grads(Block& block, DistributionJob& job) {
  const Var& grad = *block.find_var(job.table.grad);
  const VarSpec spec = slice_spec(grad, grad.dims());
  for (size_t i = 0; i < job.endpoints.size(); ++i) {
    const auto server = static_cast<int64_t>(i);
    const std::string base =
        job.sync() ? names::trainer(job.table.grad, job.arguments.trainer_id) : job.table.grad;
    job.table.grad_vars.push_back(names::pserver(base, server));
    block.declare(job.table.grad_vars.back(), spec);
  }
}

}  // namespace

Status slice_vars(Program& main, PassContext& context, DistributionJob& job) {
  Block& block = main.root();
  if (job.table.exists()) declare_table_grads(block, job);
  const bool trainer_suffix = job.sync() && job.trainers > 1;
  bool renamed = false;
  for (uint32_t i = 0; i < job.pairs.size(); ++i) {
    ParamGrad& pair = job.pairs[i];
    if (pair.param == job.table.param) continue;
    MILLRACE_RETURN_IF_ERROR(slice_pair(block, job, pair, trainer_suffix));
    if (pair.grad_on_trainer != pair.grad) {
      block.rename(pair.grad, pair.grad_on_trainer);
      job.pair_of_grad[pair.grad_on_trainer] = i;
      renamed = true;
    }
    if (job.config.print_log) {
      context.remarks.push_back(fmt::format("{}: {} slice{}", pair.param, pair.slices.size(),
                                            pair.slices.size() == 1 ? "" : "s"));
    }
  }
  if (renamed) rename_role_vars(block, job);
  return Ok();
}

}  // namespace millrace::transpiler
