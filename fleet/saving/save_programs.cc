#include "fleet/saving/save_programs.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "framework/base/of_var.h"
#include "framework/op_attrs.h"

namespace millrace::fleet {
namespace {

struct KnownOptimizer {
  llvm::StringRef type;
  std::vector<const char*> shaped;
  std::vector<const char*> scalar;
};

std::array<KnownOptimizer, 9> known_optimizers() {
  return {{{"sgd", {}, {}},
           {"adam", {"moment1_0", "moment2_0"}, {"beta1_pow_acc_0", "beta2_pow_acc_0"}},
           {"adagrad", {"moment_0"}, {}},
           {"adamax", {"moment_0", "inf_norm_0"}, {"beta1_pow_acc_0"}},
           {"momentum", {"velocity_0"}, {}},
           {"lars_momentum", {"velocity_0"}, {}},
           {"rmsprop", {"momentum_0", "mean_square_0", "mean_grad_0"}, {}},
           {"decayed_adagrad", {"moment_0"}, {}},
           {"ftrl", {"squared_0", "linear_0"}, {}}}};
}

std::string shape_text(llvm::ArrayRef<int64_t> shape) {
  return fmt::format("{}", fmt::join(shape, ","));
}

// Builds the programs of one save.
class Builder {
 public:
  explicit Builder(const FleetSaveRequest& request) : request_(request) {
    for (const Op& op : request.origin->root().ops()) {
      const auto inputs = op.input("Param");
      if (inputs.empty() || op.input("LearningRate").empty()) continue;
      optimizers_.try_emplace(inputs.front().str(), &op);
    }
  }

  StatusOr<FleetSavePlan> build() {
    if (request_.directory.empty())
      return InvalidArgument("cannot save persistable vars: the directory name is empty");
    for (const auto& [key, context] : request_.contexts.dense)
      MILLRACE_RETURN_IF_ERROR(add_dense(context));
    for (const auto& [key, context] : request_.contexts.sparse)
      MILLRACE_RETURN_IF_ERROR(add_sparse(context));
    for (const auto& [key, context] : request_.contexts.distributed)
      MILLRACE_RETURN_IF_ERROR(add_distributed(context));
    return std::move(plan_);
  }

 private:
  static Block& block_of(std::unique_ptr<Program>& program) {
    if (program == nullptr) program = Program::create();
    return program->root();
  }

  static StatusOr<std::string> param_of(const ps::CommContext& context) {
    MILLRACE_RETURN_IF_ERROR(ps::check_context(context));
    const std::vector<std::string> vars = context.vars();
    if (vars.size() == 1 && !context.split_endpoints.empty()) return vars.front();
    return of_var(
        InvalidArgument("the context has {} vars on {} servers: expected one var, on one at "
                        "least",
                        vars.size(), context.split_endpoints.size()),
        context.var_name);
  }

  StatusOr<OptimizerState> state_of(const std::string& param) const {
    const auto found = optimizers_.find(param);
    if (found == optimizers_.end())
      return of_var(NotFound("no op of the origin program updates the parameter"), param);
    StatusOr<OptimizerState> state = optimizer_state(found->second->type(), param);
    if (!state.ok()) return of_var(std::move(state).status(), param);
    return state;
  }

  StatusOr<const Var*> var_of(const std::string& name) const {
    const Var* const var = request_.origin->root().find_var(name);
    if (var == nullptr)
      return of_var(NotFound("the origin program does not declare the var"), name);
    return var;
  }

  struct SliceLists {
    std::vector<std::string> shapes;
    std::vector<std::string> local;
    std::vector<std::string> remote;
    std::vector<std::string> endpoints;
    bool sparse = false;
  };

  void add_recv_save(Block& block, const Var& var, SliceLists slices) {
    const std::string name = var.name().str();
    Op& op = block.append_op("recv_save");
    op.set_int("trainer_id", request_.worker)
        .set_attr("shape",
                  AttrValue::of_longs(std::vector<int64_t>(var.dims().begin(), var.dims().end())))
        .set_strings("slice_shapes", std::move(slices.shapes))
        .set_strings("slice_varnames", std::move(slices.local))
        .set_strings("remote_varnames", std::move(slices.remote))
        .set_strings("endpoints", std::move(slices.endpoints))
        .set_string("file_path", request_.directory + "/" + name);
    op.set_bool("is_sparse", slices.sparse);
    if (slices.sparse) op.set_int("pserver_num", request_.servers);
    plan_.received.push_back(name);
  }

  Status add_whole(Block& block, const std::string& name, std::vector<std::string> endpoints) {
    MILLRACE_ASSIGN_OR_RETURN(const Var* const var, var_of(name));
    add_recv_save(block, *var, {{shape_text(var->dims())}, {name}, {name}, std::move(endpoints)});
    return Ok();
  }

  Status add_dense(const ps::CommContext& context) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string param, param_of(context));
    if (context.split_endpoints.size() != 1) {
      return of_var(InvalidArgument("a dense parameter on {} servers: expected it whole on one",
                                    context.split_endpoints.size()),
                    param);
    }
    MILLRACE_ASSIGN_OR_RETURN(const OptimizerState state, state_of(param));
    Block& block = block_of(plan_.dense);
    MILLRACE_RETURN_IF_ERROR(add_whole(block, param, context.split_endpoints));
    for (const auto* const names : {&state.shaped, &state.scalar})
      for (const std::string& name : *names)
        MILLRACE_RETURN_IF_ERROR(add_whole(block, name, context.split_endpoints));
    return Ok();
  }

  Status add_sparse(const ps::CommContext& context) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string param, param_of(context));
    MILLRACE_ASSIGN_OR_RETURN(const OptimizerState state, state_of(param));
    MILLRACE_ASSIGN_OR_RETURN(const Var* const var, var_of(param));
    if (context.sections.size() != context.split_varnames.size()) {
      return of_var(InvalidArgument("found {} numbers of rows for {} slices",
                                    context.sections.size(), context.split_varnames.size()),
                    param);
    }
    SliceLists slices;
    slices.sparse = true;
    slices.endpoints = context.split_endpoints;
    for (const int64_t rows : context.sections) {
      std::vector<int64_t> shape(var->dims().begin(), var->dims().end());
      if (shape.empty())
        return of_var(InvalidArgument("expected a table with at least one axis"), param);
      shape[0] = rows;
      slices.shapes.push_back(shape_text(shape));
    }
    slices.local = slices.remote = context.split_varnames;
    Block& block = block_of(plan_.sparse);
    add_recv_save(block, *var, slices);
    for (const std::string& name : state.shaped) {
      MILLRACE_ASSIGN_OR_RETURN(const Var* const shaped, var_of(name));
      // On the servers, slices of optimizer state have the name of the whole var.
      for (size_t i = 0; i < slices.local.size(); ++i) {
        slices.local[i] = fmt::format("{}.block{}", name, i);
        slices.remote[i] = name;
      }
      add_recv_save(block, *shaped, slices);
    }
    for (const std::string& name : state.scalar)
      MILLRACE_RETURN_IF_ERROR(add_whole(block, name, {context.split_endpoints.front()}));
    return Ok();
  }

  Status add_distributed(const ps::CommContext& context) {
    MILLRACE_RETURN_IF_ERROR(ps::check_context(context));
    Op& op = block_of(plan_.distributed).append_op("checkpoint_notify");
    op.set_string("varname", context.var_name)
        .set_strings("slice_varnames", context.split_varnames)
        .set_strings("remote_varnames", context.split_varnames)
        .set_strings("endpoints", context.split_endpoints)
        .set_string("dirname", request_.directory);
    if (request_.form == FleetForm::kTranspiler) {
      op.set_bool("is_slice", true);
    } else {
      op.set_int("mode", request_.mode);
    }
    for (const std::string& var : context.vars()) plan_.tables.push_back(var);
    return Ok();
  }

  const FleetSaveRequest& request_;
  std::map<std::string, const Op*> optimizers_;
  FleetSavePlan plan_;
};

}  // namespace

StatusOr<OptimizerState> optimizer_state(llvm::StringRef type, const std::string& param) {
  std::string known;
  for (const KnownOptimizer& each : known_optimizers()) {
    known += (known.empty() ? "" : ", ") + each.type.str();
    if (each.type != type) continue;
    OptimizerState state;
    for (const char* const name : each.shaped) state.shaped.push_back(param + "_" + name);
    for (const char* const name : each.scalar) state.scalar.push_back(param + "_" + name);
    return state;
  }
  return InvalidArgument("fleet cannot save the state of optimizer '{}': expected one of {}",
                         type.str(), known);
}

StatusOr<FleetSavePlan> make_fleet_save_programs(const FleetSaveRequest& request) {
  return Builder(request).build();
}

llvm::StringRef base_var_name(llvm::StringRef name) {
  for (const char* const mark : {".trainer_", ".block"}) {
    if (const size_t at = name.find(mark); at != llvm::StringRef::npos) name = name.take_front(at);
  }
  return name;
}

std::vector<const Var*> remaining_vars(const Program& program, llvm::ArrayRef<std::string> saved) {
  const std::set<std::string> done(saved.begin(), saved.end());
  std::map<std::string, const Var*> left;
  for (const Block& block : program.blocks()) {
    for (const Var& var : block.vars()) {
      const std::string name = var.name().str();
      const llvm::StringRef base = base_var_name(var.name());
      const bool holder = var.kind() == VarKind::kFeedMinibatch ||
                          var.kind() == VarKind::kFetchList || var.kind() == VarKind::kReader ||
                          var.kind() == VarKind::kRaw;
      if (done.contains(name) || holder || !var.persistable() || base.endswith("@GRAD") ||
          base.startswith("learning_rate_"))
        continue;
      left.try_emplace(name, &var);
    }
  }
  std::vector<const Var*> vars;
  for (const auto& [name, var] : left) vars.push_back(var);
  return vars;
}

}  // namespace millrace::fleet
