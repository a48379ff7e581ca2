#include "fleet/job/common_accessor.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "ps/table/routing.h"
#include "transpiler/roles.h"

namespace millrace::fleet {
namespace {

// Source of a column's initial values.
enum class Source { kVar, kRate, kText };

struct Column {
  const char* name;
  bool is_scalar;
  Source source;
  const char* text;  // kText: the initializer
};

struct Rule {
  const char* name;
  std::vector<Column> columns;
  std::vector<const char*> attrs;  // floats of the optimizer op
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

StatusOr<Rule> rule_of_common_accessor(const Op& optimizer, ps::CommMode mode, const JobSpec& job,
                                       const TableFacts& table) {
  if (mode == ps::CommMode::kGeo) return geo_sum();
  if (table.is_data_norm) return summary();
  if (optimizer.type() == "adam" && job.strategy.adam_d2sum() && !table.is_sparse)
    return adam_d2sum();
  if (optimizer.type() == "sgd") return sgd();
  if (optimizer.type() == "adam") return adam();
  return Unimplemented("'{}' is updated by '{}', but tables of servers have sgd and adam only",
                       table.param, optimizer.type().str())
      .at(optimizer.location());
}

// Inputs of an update op that the servers' tables support.
constexpr const char* kKnownSlots[] = {"Param",   "Grad",     "LearningRate", "Moment1",
                                       "Moment2", "Beta1Pow", "Beta2Pow"};

// Refuses updates with other inputs, which tables would ignore.
Status check_slots_of_update(const Op& op) {
  for (const Slot& slot : op.inputs()) {
    const llvm::StringRef name = op.name_of(slot.name);
    if (slot.args.empty() || llvm::is_contained(kKnownSlots, name)) continue;
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

// Empty for ops that tables do not support.
std::string initializer_of(const Block& startup, llvm::StringRef var) {
  for (const Op* const op : startup.writers_of(var)) {
    const auto number = [&](const char* name) {
      return python_number(get_attr_or<float>(*op, name, 0));
    };
    if (op->type() == "fill_constant") return "fill_constant&" + number("value");
    for (const RandomKind& kind : kRandom) {
      if (op->type() != kind.op) continue;
      return fmt::format("{}&{}&{}&{}", kind.op, get_attr_or<int32_t>(*op, "seed", 0),
                         number(kind.first), number(kind.second));
    }
  }
  return {};
}

constexpr const char* kFromZero = "fill_constant&0.0";

// The rate of all tables, whichever rate the optimizer op reads.
constexpr const char* kRateVar = "learning_rate_0";

StatusOr<std::string> rate_initializer(const Block& main, const Block& startup, const Op& op) {
  const llvm::StringRef own = op.first_input("LearningRate");
  if (main.find_var(kRateVar) == nullptr || main.has_writers(kRateVar) || own != kRateVar) {
    return Unimplemented(
               "the learning rate '{}' of '{}' is computed by the program, or differs from that of "
               "other parameters; tables on servers need one rate for all: a constant or a "
               "schedule that the trainer steps (var '{}')",
               own.str(), op.first_input("Param").str(), kRateVar)
        .at(op.location());
  }
  return initializer_of(startup, kRateVar);
}

StatusOr<std::string> initial_value(const Column& column, const Block& main, const Block& startup,
                                    const Op& op) {
  if (column.source == Source::kText) return std::string(column.text);
  if (column.source == Source::kRate) return rate_initializer(main, startup, op);
  return initializer_of(startup, op.first_input(column.name));
}

// The data_norm op that reads the statistics of the table.
const Op* find_data_norm(const Block& main, const std::string& param) {
  for (const Op* const op : main.readers_of(param)) {
    if (op->type() == "data_norm" && op->first_input("BatchSize") == param) return op;
  }
  return nullptr;
}

}  // namespace

std::string python_number(float value) {
  std::string text = fmt::format("{}", static_cast<double>(value));
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

StatusOr<CommonAccessor> describe_optimizer(const Program& main, const Program& startup,
                                            const JobSpec& job, const JobRole& role,
                                            const TableFacts& table) {
  const Op* const op = find_optimizer(main.root(), table.param);
  if (op == nullptr) return InvalidProgram("no optimizer updates '{}'", table.param);
  MILLRACE_ASSIGN_OR_RETURN(const ps::CommMode mode, job.strategy.mode());
  MILLRACE_ASSIGN_OR_RETURN(const Rule rule, rule_of_common_accessor(*op, mode, job, table));
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
    if (llvm::StringRef(column.name).startswith("Moment") && column.source == Source::kVar &&
        initializer != kFromZero)
      return Unimplemented(
                 "'{}' of '{}' starts with '{}'; tables on servers start optimizer state with "
                 "zeros",
                 column.name, table.param, initializer)
          .at(op->location());
    out.initializers.push_back(std::move(initializer));
  }
  const Op* const data_norm =
      table.is_data_norm ? find_data_norm(main.root(), table.param) : nullptr;
  const Op& holder = data_norm != nullptr ? *data_norm : *op;
  for (const char* const name : rule.attrs) {
    MILLRACE_ASSIGN_OR_RETURN(const float value, get_attr<float>(holder, name));
    out.attrs.push_back(fmt::format("{}&{}", name, python_number(value)));
  }
  return out;
}

}  // namespace millrace::fleet
