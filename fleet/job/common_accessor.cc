#include "fleet/job/common_accessor.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "ps/table/routing.h"
#include "ps/table/update_op.h"
#include "transpiler/fleet/row_terms.h"
#include "transpiler/roles.h"

namespace millrace::fleet {
namespace {

// Source of a column's initial values.
enum class Source { kVar, kRate, kText };

llvm::StringRef slot_name(const ps::UpdateSlot& state) {
  return {state.input.data(), state.input.size()};
}

struct Column {
  std::string_view name;
  bool is_scalar;
  Source source;
  const char* text;  // kText: the initializer
};

struct Rule {
  std::string name;
  std::vector<Column> columns;
  std::vector<const char*> attrs;  // floats of the optimizer op
  bool all_attrs = false;          // all attributes of the optimizer op
};

constexpr Column kParam{"Param", false, Source::kVar, ""};
constexpr Column kRate{"LearningRate", true, Source::kRate, ""};

Rule sgd() {
  return {"sgd", {kParam, kRate}, {}};
}

Rule adam() {
  return {"adam",
          {kParam,
           {"Moment1", false, Source::kVar, ""},
           {"Moment2", false, Source::kVar, ""},
           {"Beta1Pow", true, Source::kVar, ""},
           {"Beta2Pow", true, Source::kVar, ""},
           kRate},
          {"beta1", "beta2", "epsilon"}};
}

Rule adam_d2sum() {
  return {"adam_d2sum",
          {kParam,
           {"D2Sum", false, Source::kText, "fill_constant&0"},
           {"G2Sum", false, Source::kText, "fill_constant&0"},
           {"Moment", false, Source::kText, "fill_constant&0"},
           {"MomentDecayRate", true, Source::kText, "fill_constant&0.99"},
           {"AdaDecayRate", true, Source::kText, "fill_constant&0.9999"},
           {"AdaEpsilon", true, Source::kText, "fill_constant&1.0e-8"},
           kRate},
          {"beta1", "beta2", "epsilon"}};
}

Rule geo_sum() {
  return {"sum", {kParam}, {}};
}

Rule summary() {
  return {"summary",
          {kParam, {"SummaryDecayRate", true, Source::kText, "fill_constant&0.999999"}},
          {"summary_decay_rate"}};
}

// Any other op, with the states that it has.
Rule rule_of_op(const Op& op, const ps::UpdateOpKind& kind) {
  Rule rule{op.type().str(), {kParam}, {}, true};
  for (const ps::UpdateSlot& state : kind.states) {
    if (!op.first_input(slot_name(state)).empty())
      rule.columns.push_back({state.input, state.is_scalar, Source::kVar, ""});
  }
  rule.columns.push_back(kRate);
  return rule;
}

constexpr llvm::StringLiteral kUpdatesOfRows[] = {"sgd", "adam", "adamax", "adamw"};

// Workers of geo jobs update embeddings themselves, by gradients that are selected rows. The ops of
// the original take a parameter that is declared as rows (sparse_embedding) only in some updates.
Status check_geo_update(const Op& optimizer, const JobSpec& job, const TableFacts& table) {
  const llvm::StringRef type = optimizer.type();
  if (!table.is_sparse) return Ok();
  if (type == "lars_momentum" || type == "dpsgd")
    return Unimplemented(
               "'{}' is updated by '{}' on the workers: Grad must be dense, found selected rows",
               table.param, type.str())
        .at(optimizer.location());
  const Var* const param = optimizer.block().find_var(table.param);
  const bool is_declared_as_rows = param != nullptr && param->kind() == VarKind::kSelectedRows;
  if (!is_declared_as_rows || llvm::is_contained(kUpdatesOfRows, type) ||
      job.strategy.all_optimizers())
    return Ok();
  return Unimplemented(
             "'{}' is declared as rows and updated by '{}' on the workers; the original does that "
             "by sgd, adam, adamax and adamw only",
             table.param, type.str())
      .with_hint("set all_optimizers of the strategy; workers then hold the whole embedding")
      .at(optimizer.location());
}

StatusOr<Rule> rule_of(const Op& optimizer, ps::CommMode mode, const JobSpec& job,
                       const TableFacts& table) {
  if (mode == ps::CommMode::kGeo) {
    MILLRACE_RETURN_IF_ERROR(check_geo_update(optimizer, job, table));
    return geo_sum();
  }
  if (table.is_data_norm) return summary();
  if (optimizer.type() == "adam" && job.strategy.adam_d2sum() && !table.is_sparse)
    return adam_d2sum();
  if (optimizer.type() == "sgd") return sgd();
  if (optimizer.type() == "adam") return adam();
  const llvm::StringRef type = optimizer.type();
  const ps::UpdateOpKind* const kind = ps::find_update_op({type.data(), type.size()});
  if (kind == nullptr)
    return Unimplemented("'{}' is updated by '{}', but tables of servers have {} only", table.param,
                         type.str(), ps::update_op_types())
        .at(optimizer.location());
  if (kind->is_whole && table.is_sparse)
    return Unimplemented(
               "'{}' is updated by '{}', which needs all rows at once, but the rows of an "
               "embedding "
               "are updated one by one on several servers",
               table.param, type.str())
        .at(optimizer.location());
  if (!job.strategy.all_optimizers())
    return Unimplemented(
               "'{}' is updated by '{}', but tables of servers have sgd and adam only, as in the "
               "original",
               table.param, type.str())
        .with_hint("set all_optimizers of the strategy; servers then run the op '" + type.str() +
                   "' themselves")
        .at(optimizer.location());
  return rule_of_op(optimizer, *kind);
}

// Refuses updates with inputs that tables would ignore.
Status check_slots_of_update(const Op& op) {
  const llvm::StringRef type = op.type();
  const ps::UpdateOpKind* const kind = ps::find_update_op({type.data(), type.size()});
  for (const Slot& slot : op.inputs()) {
    const llvm::StringRef name = op.name_of(slot.name);
    const bool is_known =
        name == "Param" || name == "Grad" || name == "LearningRate" ||
        (kind != nullptr && llvm::any_of(kind->states, [&](const ps::UpdateSlot& state) {
           return slot_name(state) == name;
         }));
    if (slot.args.empty() || is_known) continue;
    return Unimplemented(
               "'{}' updates '{}' with its input {} ('{}'), which tables on servers do not support",
               op.type().str(), op.first_input("Param").str(), name.str(),
               op.first_input(name).str())
        .at(op.location());
  }
  return Ok();
}

const Op* find_optimizer(const Block& block, const std::string& param) {
  for (const Op* const op : block.readers_of(param)) {
    if (transpiler::role::is_optimize_op(*op) && op->first_input("Param") == param) return op;
  }
  return nullptr;
}

struct RandomKind {
  const char* op;
  const char* first;  // attributes in order; a seed is written before two numbers
  const char* second;
};
constexpr RandomKind kRandom[] = {{"gaussian_random", "mean", "std"},
                                  {"truncated_gaussian_random", "mean", "std"},
                                  {"uniform_random", "min", "max"}};

// The text has priority where the op has one.
std::string constant_initializer(const Op& op) {
  const std::string text = get_attr_or(op, "str_value", std::string());
  float value = get_attr_or<float>(op, "value", 0);
  double stated = 0;
  if (!text.empty()) {
    if (llvm::StringRef(text).getAsDouble(stated)) return {};
    value = static_cast<float>(stated);
  }
  return "fill_constant&" + python_number(value);
}

// Empty for values that tables do not support: of other ops, or of several.
std::string initializer_of(const Block& startup, llvm::StringRef var) {
  const auto writers = startup.writers_of(var);
  if (writers.size() != 1) return {};
  const Op& op = *writers.front();
  if (op.type() == "fill_constant") return constant_initializer(op);
  for (const RandomKind& kind : kRandom) {
    if (op.type() != kind.op) continue;
    return fmt::format("{}&{}&{}&{}", kind.op, get_attr_or<int32_t>(op, "seed", 0),
                       python_number(get_attr_or<float>(op, kind.first, 0)),
                       python_number(get_attr_or<float>(op, kind.second, 0)));
  }
  return {};
}

constexpr llvm::StringLiteral kConstant = "fill_constant&";

// The rate of all tables, whichever rate the optimizer op reads.
constexpr const char* kRateVar = "learning_rate_0";

// The var of which a parameter's own rate is a multiple.
struct RateSource {
  llvm::StringRef base;
  float factor = 1;
};

RateSource rate_source(const Block& main, const Op& op) {
  constexpr int32_t kOwnRate = transpiler::role::kLrSched | transpiler::role::kOptimize;
  RateSource source{op.first_input("LearningRate"), 1};
  const auto writers = main.writers_of(source.base);
  if (writers.size() != 1) return source;
  const Op& scale = *writers.front();
  if (scale.type() != "scale" || transpiler::role::of(scale) != kOwnRate ||
      get_attr_or(scale, "bias", 0.0F) != 0 || !scale.first_input("ScaleTensor").empty())
    return source;
  return {scale.first_input("X"), get_attr_or(scale, "scale", 1.0F)};
}

// Workers compute the rate before each step, so it must not depend on the step's values.
Status check_computed_rate(const Block& main) {
  for (const Op* const op : transpiler::role::lr_ops(main)) {
    if (transpiler::role::of(*op) != transpiler::role::kLrSched) continue;
    for (const llvm::StringRef name : op->input_names()) {
      const Var* const var = main.find_var(name);
      const auto writers = main.writers_of(name);
      const bool is_known = var == nullptr || var->persistable() || !writers.empty();
      if (is_known && llvm::all_of(writers, [](const Op* writer) {
            return transpiler::role::is_lr_op(*writer);
          }))
        continue;
      return Unimplemented(
                 "'{}' computes the learning rate from '{}', which is a feed or a value of the "
                 "network; workers of a fleet job compute the rate before they run the network",
                 op->type().str(), name.str())
          .at(op->location());
    }
  }
  return Ok();
}

JobRate rate_of_job(const Block& main) {
  for (const Op& op : main.ops()) {
    if (!transpiler::role::is_optimize_op(op) || !transpiler::role::is_optimizer(op)) continue;
    const llvm::StringRef base = rate_source(main, op).base;
    return {base.str(), main.has_writers(base)};
  }
  return {};
}

StatusOr<std::string> rate_initializer(const Block& main, const Block& startup, const Op& op) {
  const llvm::StringRef own = rate_source(main, op).base;
  const JobRate rate = rate_of_job(main);
  const bool is_schedule =
      rate.is_computed && llvm::all_of(main.writers_of(rate.var), [](const Op* writer) {
        return transpiler::role::of(*writer) == transpiler::role::kLrSched;
      });
  if (own != rate.var || (!is_schedule && own != kRateVar)) {
    return Unimplemented(
               "the learning rate '{}' of '{}' is computed outside of a schedule, or is not a "
               "multiple of that of other parameters ('{}'); tables on servers need one rate for "
               "all: a constant or a schedule that the trainer steps (var '{}'), or ops of role "
               "LRSched",
               own.str(), op.first_input("Param").str(), rate.var, kRateVar)
        .at(op.location());
  }
  if (!rate.is_computed) return initializer_of(startup, kRateVar);
  MILLRACE_RETURN_IF_ERROR(check_computed_rate(main));
  return std::string("fill_constant&1.0");
}

StatusOr<std::string> initial_value(const Column& column, const Block& main, const Block& startup,
                                    const Op& op) {
  if (column.source == Source::kText) return std::string(column.text);
  if (column.source == Source::kRate) return rate_initializer(main, startup, op);
  return initializer_of(startup, op.first_input({column.name.data(), column.name.size()}));
}

// State must start with the same value in all elements, and the rate with one that is known now.
Status check_start(const Column& column, const std::string& initializer, const Op& op) {
  if (column.source == Source::kText || column.name == kParam.name ||
      llvm::StringRef(initializer).startswith(kConstant))
    return Ok();
  return Unimplemented(
             "'{}' of '{}' starts with '{}'; tables on servers start optimizer state and the rate "
             "with a constant of the startup program",
             column.name, op.first_input("Param").str(), initializer)
      .at(op.location());
}

// The data_norm op that reads the statistics of the table.
const Op* find_data_norm(const Block& main, const std::string& param) {
  for (const Op* const op : main.readers_of(param)) {
    if (op->type() == "data_norm" && op->first_input("BatchSize") == param) return op;
  }
  return nullptr;
}

void add_row_terms(const Block& main, const Op& op, ps::CommMode mode, CommonAccessor& out) {
  const transpiler::RowTerms terms = transpiler::find_row_terms(main, op);
  const ps::UpdateOpKind* const kind = ps::find_update_op(op.type().str());
  const bool moves =
      kind != nullptr && kind->moves_without_gradient && !get_attr_or(op, "lazy_mode", false);
  out.moves_all_rows = moves || terms.l1 != 0 || terms.l2 != 0;
  if (mode == ps::CommMode::kGeo) return;  // workers clip and regularize
  out.clip_min = terms.clip_min;
  out.clip_max = terms.clip_max;
  out.l1 = terms.l1;
  out.l2 = terms.l2;
}

}  // namespace

std::string python_number(float value) {
  std::string text = fmt::format("{}", static_cast<double>(value));
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

JobRate job_rate(const Program& main) {
  return rate_of_job(main.root());
}

StatusOr<CommonAccessor> describe_optimizer(const Program& main, const Program& startup,
                                            const JobSpec& job, const JobRole& role,
                                            const TableFacts& table) {
  const Op* const op = find_optimizer(main.root(), table.param);
  if (op == nullptr) return InvalidProgram("no optimizer updates '{}'", table.param);
  MILLRACE_ASSIGN_OR_RETURN(const ps::CommMode mode, job.strategy.mode());
  MILLRACE_ASSIGN_OR_RETURN(const Rule rule, rule_of(*op, mode, job, table));
  // in geo mode, workers update; statistics of data_norm are only summed
  if (mode != ps::CommMode::kGeo && !table.is_data_norm)
    MILLRACE_RETURN_IF_ERROR(check_slots_of_update(*op));
  const auto servers = static_cast<int64_t>(job.servers.size());
  const int64_t width =
      table.is_sparse ? table.width : ps::dense_range(table.size, servers, role.index).count;
  CommonAccessor out;
  out.name = rule.name;
  for (const Column& column : rule.columns) {
    out.params.emplace_back(column.name);
    out.dims.push_back(column.is_scalar ? 1 : width);
    MILLRACE_ASSIGN_OR_RETURN(std::string initializer,
                              initial_value(column, main.root(), startup.root(), *op));
    MILLRACE_RETURN_IF_ERROR(check_start(column, initializer, *op));
    if (column.source == Source::kRate) out.rate_factor = rate_source(main.root(), *op).factor;
    out.initializers.push_back(std::move(initializer));
  }
  if (table.is_sparse) add_row_terms(main.root(), *op, mode, out);
  const Op* const data_norm =
      table.is_data_norm ? find_data_norm(main.root(), table.param) : nullptr;
  for (const char* const name : rule.attrs) {
    float value = 0.9999999F;  // of data_norm ops of early releases, which lack the attribute
    if (data_norm == nullptr || data_norm->find_attr(name) != nullptr) {
      MILLRACE_ASSIGN_OR_RETURN(value,
                                get_attr<float>(data_norm != nullptr ? *data_norm : *op, name));
    }
    out.attrs.push_back(fmt::format("{}&{}", name, python_number(value)));
  }
  if (rule.all_attrs) {
    MILLRACE_ASSIGN_OR_RETURN(out.attrs.emplace_back(), ps::update_op_attrs(*op));
  }
  return out;
}

bool CommonAccessor::updates_like(const CommonAccessor& other) const {
  const auto same_state = [&] {
    return std::equal(initializers.begin() + 1, initializers.end(), other.initializers.begin() + 1,
                      other.initializers.end());
  };
  return name == other.name && params == other.params && attrs == other.attrs &&
         rate_factor == other.rate_factor && same_state();
}

}  // namespace millrace::fleet
