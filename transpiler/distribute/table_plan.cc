#include "transpiler/distribute/table_plan.h"

#include <algorithm>
#include <set>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "transpiler/distribute/divide_updates.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

constexpr const char* kDataNormSuffixes[] = {".batch_size@GRAD", ".batch_sum@GRAD",
                                             ".batch_square_sum@GRAD"};

bool is_data_norm_grad(llvm::StringRef name) {
  return llvm::any_of(kDataNormSuffixes, [&](const char* suffix) { return name.endswith(suffix); });
}

std::set<std::string> remote_embeddings(const Program& main) {
  std::set<std::string> names;
  for (const Op& op : main.root().ops()) {
    if (is_remote_lookup(op)) names.insert(op.first_input("W").str());
  }
  return names;
}

StatusOr<std::vector<int64_t>> dims_of(const Block& root, const TrainedVar& var) {
  const Var* const grad = root.find_var(var.grad);
  if (grad == nullptr)
    return InvalidProgram("'{}', the gradient of '{}', is not declared", var.grad, var.param);
  for (const int64_t dim : grad->dims()) {
    if (dim < 0)
      return InvalidProgram("'{}', the gradient of '{}', has the unknown dim {}", var.grad,
                            var.param, dim);
  }
  return grad->dims().vec();
}

Status add_dense(const Block& root, const std::vector<TrainedVar>& vars, bool data_norm,
                 TablePlan& plan) {
  DenseTablePlan table;
  table.is_data_norm = data_norm;
  table.table_id = plan.barrier_id;
  for (const TrainedVar& var : vars) {
    if (is_data_norm_grad(var.grad) != data_norm) continue;
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, dims_of(root, var));
    int64_t count = 1;
    for (const int64_t dim : dims) {
      if (__builtin_mul_overflow(count, dim, &count))
        return InvalidProgram("'{}' has too many elements", var.grad);
    }
    if (__builtin_add_overflow(table.elements, count, &table.elements))
      return InvalidProgram("the dense parameters have too many elements");
    table.vars.push_back(var);
  }
  if (data_norm && table.vars.empty()) return Ok();
  plan.dense.push_back(std::move(table));
  ++plan.barrier_id;
  return Ok();
}

// The gradient of the lookup determines the rows that a step looked up; the gradient after
// regularization does not.
std::string gradient_of_rows(const Block& root, const std::string& param, std::string otherwise) {
  for (const Op& op : root.ops()) {
    const llvm::ArrayRef<std::string> vars = role::vars(op);
    if (role::of(op) != role::kBackward) continue;
    for (size_t i = 0; i + 1 < vars.size(); i += 2) {
      if (vars[i] == param) otherwise = vars[i + 1];
    }
  }
  return otherwise;
}

}  // namespace

bool is_lookup(const Op& op) {
  return op.type() == "lookup_table" || op.type() == "lookup_table_v2";
}

bool is_remote_lookup(const Op& op) {
  return is_lookup(op) && get_attr_or(op, "remote_prefetch", false);
}

Status check_lookups(const Program& main, bool distributed) {
  for (const Op& op : main.root().ops()) {
    if (!is_lookup(op) || is_remote_lookup(op)) continue;
    const bool is_distributed = get_attr_or(op, "is_distributed", false);
    if (is_distributed ? !distributed : !get_attr_or(op, "is_sparse", false)) continue;
    return Unimplemented(
               "'{}' looks up '{}' with {}, but without remote_prefetch: neither workers nor "
               "servers would have its rows",
               op.type().str(), op.first_input("W").str(),
               is_distributed ? "is_distributed" : "is_sparse")
        .with_hint(
            "set remote_prefetch of the op for a table of the servers, or unset is_sparse for a "
            "dense parameter")
        .at(op.location());
  }
  return Ok();
}

Status check_geo_lookups(const Program& main) {
  for (const Op& op : main.root().ops()) {
    if (!is_remote_lookup(op) || get_attr_or(op, "is_sparse", false)) continue;
    return Unimplemented(
               "'{}' looks up '{}' with remote_prefetch, but without is_sparse: geo workers send "
               "the rows of gradients that are selected rows",
               op.type().str(), op.first_input("W").str())
        .at(op.location());
  }
  return Ok();
}

StatusOr<int64_t> common_padding(llvm::ArrayRef<Op*> lookups) {
  const auto padding_of = [](const Op& op) {
    return std::max<int64_t>(-1, get_attr_or<int64_t>(op, "padding_idx", -1));
  };
  if (lookups.empty()) return int64_t{-1};
  const int64_t first = padding_of(*lookups.front());
  for (const Op* const op : lookups) {
    if (padding_of(*op) == first) continue;
    return Unimplemented(
               "the lookups of table '{}' have padding_idx {} and {}; on servers a table has one",
               op->first_input("W").str(), first, padding_of(*op))
        .at(op->location());
  }
  return first;
}

std::vector<std::string> embedding_names(const Program& main) {
  std::set<std::string> names;
  for (const Op& op : main.root().ops()) {
    if (is_lookup(op) &&
        (get_attr_or(op, "is_sparse", false) || get_attr_or(op, "is_distributed", false)))
      names.insert(op.first_input("W").str());
  }
  return {names.begin(), names.end()};
}

bool is_distributed_embedding(const Program& main, llvm::StringRef param) {
  return llvm::any_of(main.root().readers_of(param), [&](const Op* op) {
    return is_lookup(*op) && op->first_input("W") == param &&
           get_attr_or(*op, "is_distributed", false);
  });
}

std::string DenseTablePlan::context_name() const {
  return (is_data_norm ? "DataNorm@GRAD_" : "Dense@GRAD_") + std::to_string(table_id);
}

const SparseTablePlan* TablePlan::find_sparse(llvm::StringRef param) const {
  for (const SparseTablePlan& table : sparse) {
    if (table.var.param == param) return &table;
  }
  return nullptr;
}

StatusOr<TrainedVars> find_trained_vars(const Program& main) {
  const std::set<std::string> remote = remote_embeddings(main);
  TrainedVars found;
  // the copy is not changed, but divide_updates() needs mutable ops
  const std::unique_ptr<Program> copy = main.clone();
  MILLRACE_ASSIGN_OR_RETURN(const OptimizePart part,
                            divide_updates(copy->root(), {.decay_on_servers = false}));
  std::set<std::string> seen;
  for (const ServerOp& server : part.server) {
    if (!seen.insert(server.param).second) continue;
    const UpdateFlow& flow = part.updates.find(server.param)->second;
    const bool sparse = remote.count(server.param) != 0;
    TrainedVar var{server.param, flow.gradient};
    if (sparse && flow.kind != VarKind::kSelectedRows)
      var.grad = gradient_of_rows(main.root(), server.param, var.grad);
    for (const std::string& name : {var.param, var.grad}) {
      if (main.root().find_var(name) == nullptr)
        return InvalidProgram("the update needs '{}', which block 0 does not declare", name)
            .at(flow.update->location());
    }
    (sparse ? found.sparse : found.dense).push_back(std::move(var));
  }
  return found;
}

StatusOr<TablePlan> plan_tables(const Program& main) {
  MILLRACE_ASSIGN_OR_RETURN(const TrainedVars vars, find_trained_vars(main));
  TablePlan plan;
  for (const TrainedVar& var : vars.sparse) {
    SparseTablePlan table{.var = var, .table_id = plan.barrier_id++, .dims = {}};
    table.is_distributed = is_distributed_embedding(main, var.param);
    MILLRACE_ASSIGN_OR_RETURN(table.dims, dims_of(main.root(), var));
    if (table.dims.size() != 2)
      return InvalidProgram("'{}' is an embedding of {} dims, expected 2", var.param,
                            table.dims.size());
    if (table.is_distributed) table.dims[0] = 0;
    plan.sparse.push_back(std::move(table));
  }
  if (!vars.dense.empty()) {
    MILLRACE_RETURN_IF_ERROR(add_dense(main.root(), vars.dense, false, plan));
    MILLRACE_RETURN_IF_ERROR(add_dense(main.root(), vars.dense, true, plan));
  }
  return plan;
}

}  // namespace millrace::transpiler
