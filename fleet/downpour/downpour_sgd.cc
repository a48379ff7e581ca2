#include "fleet/downpour/downpour_sgd.h"

#include <algorithm>

#include <google/protobuf/text_format.h>

#include "fleet/downpour/downpour_server.h"
#include "fleet/downpour/downpour_worker.h"
#include "fleet/job/desc_text.h"
#include "framework/base/errors.h"
#include "framework/names.h"
#include "framework/op_attrs.h"
#include "proto/pslib_desc.pb.h"
#include "transpiler/distribute/table_plan.h"
#include "transpiler/roles.h"

namespace millrace::fleet {
namespace {

namespace desc = pslib_desc;

constexpr int kSparseTable = 0;

// The distributed lookup table of a program and its uses; an empty name if there is none.
struct LookupTable {
  std::string param;
  std::vector<SlotVars> slots;
};

StatusOr<LookupTable> find_lookup_table(const Program& program) {
  LookupTable table;
  for (const Op& op : program.root().ops()) {
    if (!transpiler::is_lookup(op) || !get_attr_or(op, "is_distributed", false)) continue;
    const std::string param = op.first_input("W").str();
    if (!table.param.empty() && table.param != param)
      return InvalidArgument("'{}' and '{}' are both distributed lookup tables, expected one",
                             table.param, param)
          .at(op.location());
    table.param = param;
    table.slots.push_back({op.first_input("Ids").str(), op.first_output("Out").str()});
  }
  return table;
}

// Workers fill the slots of the first program, whichever program they run.
Status check_slots(const Program& program, const LookupTable& first) {
  MILLRACE_ASSIGN_OR_RETURN(const LookupTable own, find_lookup_table(program));
  if (own.param.empty()) return Ok();
  if (own.param != first.param)
    return InvalidArgument(
        "'{}' is the distributed lookup table of another loss's program, expected '{}', that of "
        "the first",
        own.param, first.param);
  for (const SlotVars& slot : own.slots) {
    const bool known = std::ranges::any_of(first.slots, [&](const SlotVars& each) {
      return each.key == slot.key && each.value == slot.value;
    });
    if (!known)
      return InvalidArgument(
          "a program looks up '{}' for '{}', which the program of the first loss does not; workers "
          "fill only the slots of the first program",
          slot.key, slot.value);
  }
  return Ok();
}

// Refuses parts of a program that the servers' tables would ignore.
Status check_program_of_tables(const Program& program) {
  namespace role = transpiler::role;
  for (const Block& block : program.blocks()) {
    for (const Op& op : block.ops()) {
      if (role::is_lr_op(op))
        return Unimplemented(
                   "'{}' belongs to a learning rate schedule; tables of DownpourSGD have constant "
                   "rates, from dense_configs and sparse_configs",
                   op.type().str())
            .at(op.location());
      if (role::is_optimizer(op) || (role::of(op) & role::kOptimize) != 0)
        return Unimplemented(
                   "'{}' belongs to an optimizer, clipping, regularization or averaging in the "
                   "program; tables of DownpourSGD only update by their own rules",
                   op.type().str())
            .at(op.location());
      if (block.index() > 0 && transpiler::is_lookup(op) &&
          get_attr_or(op, "is_distributed", false))
        return Unimplemented(
                   "the distributed lookup of '{}' is in a sub-block; workers fill only those of "
                   "block 0",
                   op.first_input("W").str())
            .at(op.location());
      if (transpiler::is_lookup(op) && get_attr_or(op, "is_sparse", false) &&
          !get_attr_or(op, "is_distributed", false))
        return Unimplemented(
                   "the embedding '{}' is sparse, but not a distributed lookup table; a dense "
                   "table cannot take its gradient",
                   op.first_input("W").str())
            .at(op.location())
            .with_hint("set is_distributed, or is_sparse to false");
    }
  }
  return Ok();
}

// The parameters of a dense table, with their gradients.
struct DenseVars {
  std::vector<DenseVar> params;
  std::vector<std::string> names;
  std::vector<std::string> grads;
};

StatusOr<DenseVar> dense_var(const Program& program, const std::string& name) {
  const Var* const var = program.root().find_var(name);
  const std::optional<int64_t> count = var == nullptr ? std::nullopt : element_count(var->dims());
  if (!count || *count < 0) return InvalidProgram("the parameter '{}' has no known shape", name);
  return DenseVar{name, *count};
}

bool has_one_of_ends(const std::string& name, const std::vector<std::string>& ends) {
  return std::any_of(ends.begin(), ends.end(),
                     [&](const std::string& end) { return llvm::StringRef(name).endswith(end); });
}

// Parameters whose names have one of the ends are statistics of data_norm, which have a table of
// their own.
StatusOr<DenseVars> choose(const Program& program, const std::vector<ops::ParamGrad>& pairs,
                           const std::vector<std::string>& ends, bool statistics) {
  DenseVars out;
  for (const ops::ParamGrad& pair : pairs) {
    if (has_one_of_ends(pair.param, ends) != statistics) continue;
    MILLRACE_ASSIGN_OR_RETURN(DenseVar var, dense_var(program, pair.param));
    out.params.push_back(std::move(var));
    out.names.push_back(pair.param);
    out.grads.push_back(pair.grad);
  }
  return out;
}

StatusOr<desc::PSParameter> read_description(const std::string& text) {
  desc::PSParameter out;
  MILLRACE_RETURN_IF_ERROR(parse_description(text, "fleet_desc", out));
  if (out.trainer_param_size() > 1)
    return Unimplemented("fleet_desc: found {} trainer_param, expected at most one",
                         out.trainer_param_size());
  return out;
}

class Minimizer {
 public:
  Minimizer(const ops::OpRegistry& registry, const DownpourOptions& options,
            const desc::PSParameter& start)
      : registry_(registry),
        options_(options),
        server_(start.has_server_param() ? &start.server_param() : nullptr),
        worker_(options.window,
                start.trainer_param_size() > 0 ? &start.trainer_param(0) : nullptr) {}

  Status add_loss(const DownpourLoss& loss, const std::string& program_id,
                  const std::vector<std::string>& parameters,
                  const std::set<std::string>& no_grad) {
    ops::BackwardRequest request;
    request.loss = loss.name;
    request.parameters = parameters;
    request.no_grad = no_grad;
    request.earlier_calls = calls_[loss.program]++;
    MILLRACE_ASSIGN_OR_RETURN(std::vector<ops::ParamGrad> pairs,
                              ops::append_backward(registry_, *loss.program, request));
    std::sort(pairs.begin(), pairs.end(),
              [](const auto& a, const auto& b) { return a.param < b.param; });
    ProgramTables& tables = result_.info.program_configs[program_id];
    tables.pull_sparse = tables.push_sparse = {kSparseTable};
    MILLRACE_RETURN_IF_ERROR(add_dense(*loss.program, pairs, false, tables));
    MILLRACE_RETURN_IF_ERROR(add_dense(*loss.program, pairs, true, tables));
    result_.param_grads.push_back(std::move(pairs));
    return Ok();
  }

  // Called after all losses, when it is known which rows have gradients.
  Status add_sparse(const Program& program, LookupTable table) {
    for (SlotVars& slot : table.slots)
      slot.has_gradient = program.root().find_var(names::grad(slot.value)) != nullptr;
    return worker_.add_sparse_table(kSparseTable, table.slots);
  }

  Status add_server_table(const std::string& param) {
    if (!param.empty()) embeddings_ = {param};
    return server_.add_sparse_table(kSparseTable,
                                    with_early(options_.sparse_configs, early_sparse_configs));
  }

  StatusOr<DownpourResult> finish(desc::PSParameter description) {
    worker_.skip_ops(skipped());
    result_.remarks = server_.remarks();
    if (!has_statistics_ && !options_.data_norm_configs.empty())
      result_.remarks.emplace_back(
          "datanorm_configs have no effect: no program trains statistics of data_norm");
    *description.mutable_server_param() = server_.desc();
    description.clear_trainer_param();
    *description.add_trainer_param() = worker_.desc();
    if (options_.program_config_messages) add_messages(*description.mutable_trainer_param(0));
    if (!google::protobuf::TextFormat::PrintToString(description, &result_.info.fleet_desc))
      return Internal("the description of the tables cannot be printed");
    result_.info.worker_skipped_ops = skipped();
    result_.info.use_cvm = options_.use_cvm;
    return std::move(result_);
  }

 private:
  static std::vector<std::string> skipped() { return {"lookup_table", "lookup_table_grad"}; }

  // If `early` is set, adds the settings of the first versions; the user's take precedence.
  [[nodiscard]] ConfigDict with_early(const ConfigDict& configs,
                                      ConfigDict (*early)(double)) const {
    ConfigDict all = configs;
    if (options_.early) all.merge(early(options_.learning_rate.value_or(0.2)));
    return all;
  }

  Status add_dense(const Program& program, const std::vector<ops::ParamGrad>& pairs,
                   bool statistics, ProgramTables& tables) {
    MILLRACE_ASSIGN_OR_RETURN(const DenseVars vars,
                              choose(program, pairs, options_.data_norm_names, statistics));
    if (statistics && vars.params.empty()) return Ok();
    has_statistics_ = has_statistics_ || statistics;
    const int id = next_table_++;
    const Status added =
        statistics
            ? server_.add_data_norm_table(id, vars.params, embeddings_, options_.data_norm_configs)
            : server_.add_dense_table(id, vars.params, embeddings_,
                                      with_early(options_.dense_configs, early_dense_configs));
    MILLRACE_RETURN_IF_ERROR(added);
    worker_.add_dense_table(id, vars.names, vars.grads, embeddings_);
    tables.pull_dense.push_back(id);
    tables.push_dense.push_back(id);
    return Ok();
  }

  void add_messages(desc::DownpourTrainerParameter& out) const {
    for (const auto& [id, tables] : result_.info.program_configs) {
      desc::ProgramConfig& config = *out.add_program_config();
      config.set_program_id(id);
      for (const int table : tables.push_sparse) config.add_push_sparse_table_id(table);
      for (const int table : tables.push_dense) config.add_push_dense_table_id(table);
      for (const int table : tables.pull_sparse) config.add_pull_sparse_table_id(table);
      for (const int table : tables.pull_dense) config.add_pull_dense_table_id(table);
    }
  }

  const ops::OpRegistry& registry_;
  const DownpourOptions& options_;
  DownpourServer server_;
  DownpourWorker worker_;
  std::vector<std::string> embeddings_;
  std::map<const Program*, int> calls_;
  int next_table_ = kSparseTable + 1;
  bool has_statistics_ = false;  // of data_norm
  DownpourResult result_;
};

}  // namespace

StatusOr<DownpourResult> minimize_downpour(const ops::OpRegistry& registry,
                                           const std::vector<DownpourLoss>& losses,
                                           const DownpourOptions& options,
                                           const std::vector<std::string>& parameters,
                                           const std::set<std::string>& no_grad) {
  if (losses.empty()) return InvalidArgument("DownpourSGD needs at least one loss");
  if (options.learning_rate && !options.early)
    return InvalidArgument(
        "learning_rate {} has no effect without 'early': the rates of tables are "
        "sparse_learning_rate and dense_learning_rate of sparse_configs and dense_configs",
        *options.learning_rate);
  MILLRACE_ASSIGN_OR_RETURN(desc::PSParameter description, read_description(options.fleet_desc));
  for (const DownpourLoss& loss : losses)
    MILLRACE_RETURN_IF_ERROR(check_program_of_tables(*loss.program));
  MILLRACE_ASSIGN_OR_RETURN(LookupTable table, find_lookup_table(*losses.front().program));
  for (const DownpourLoss& loss : losses)
    MILLRACE_RETURN_IF_ERROR(check_slots(*loss.program, table));
  Minimizer minimizer(registry, options, description);
  MILLRACE_RETURN_IF_ERROR(minimizer.add_server_table(table.param));
  std::vector<const Program*> programs;
  for (const DownpourLoss& loss : losses) {
    auto at = std::find(programs.begin(), programs.end(), loss.program);
    if (at == programs.end()) at = programs.insert(at, loss.program);
    const std::string id = "PROGRAM_" + std::to_string(at - programs.begin());
    MILLRACE_RETURN_IF_ERROR(minimizer.add_loss(loss, id, parameters, no_grad));
  }
  MILLRACE_RETURN_IF_ERROR(minimizer.add_sparse(*losses.front().program, std::move(table)));
  return minimizer.finish(std::move(description));
}

}  // namespace millrace::fleet
