#include "transpiler/distribute/typed_tables.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "transpiler/distribute/op_builder.h"
#include "transpiler/distribute/table_plan.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace typed_tables {
namespace {

bool is_lookup_grad(const Op& op) {
  return op.type() == "lookup_table_grad" || op.type() == "lookup_table_v2_grad";
}

// The number with which the op fills its output; nullopt for other ops and for text that is no
// number.
std::optional<float> filled_value(const Op* op) {
  if (op == nullptr || op->type() != "fill_constant" || !op->first_input("ValueTensor").empty())
    return std::nullopt;
  const std::string text = get_attr_or(*op, "str_value", std::string());
  double value = get_attr_or<float>(*op, "value", 0);
  if (!text.empty() && llvm::StringRef(text).getAsDouble(value)) return std::nullopt;
  return static_cast<float>(value);
}

// The ops of one embedding.
struct Embedding {
  std::vector<Op*> lookups;
  std::vector<Op*> grads;
  Op* sum = nullptr;  // adds up the gradients of several lookups; null: there is only one lookup
  Op* optimizer = nullptr;
};

Status sort_ops(const Block& block, const std::string& param, Embedding& found) {
  for (Op* const op : block.readers_of(param)) {
    if (is_lookup(*op)) {
      found.lookups.push_back(op);
    } else if (is_lookup_grad(*op)) {
      found.grads.push_back(op);
    } else if (role::is_optimizer(*op) && op->first_input("Param") == param) {
      found.optimizer = op;
    } else {
      return Unimplemented("'{}' cannot become a typed table: a '{}' reads it", param,
                           op->type().str())
          .at(op->location());
    }
  }
  if (found.lookups.empty() || found.grads.empty() || found.optimizer == nullptr) {
    return InvalidArgument(
        "sparse_tables: '{}' has {} lookups, {} gradients of them and {} update, expected at "
        "least one of each",
        param, found.lookups.size(), found.grads.size(), found.optimizer == nullptr ? "no" : "an");
  }
  for (const Op* const op : found.lookups) {
    if (op->type() == found.lookups.front()->type()) continue;
    return Unimplemented("typed table '{}' is looked up by ops of different types", param)
        .at(op->location());
  }
  return common_padding(found.lookups).status();
}

// Only a sum may be between the gradients of the lookups and the one that the optimizer reads.
Status find_sum(const Block& block, const std::string& param, Embedding& found) {
  const llvm::StringRef wanted = found.optimizer->first_input("Grad");
  Op* const writer = block.last_writer(wanted);
  if (writer == nullptr)
    return InvalidArgument("no op writes '{}', the gradient of '{}'", wanted.str(), param);
  if (is_lookup_grad(*writer) && found.grads.size() == 1) return Ok();
  if (writer->type() != "sum" || writer->input("X").size() != found.grads.size()) {
    return Unimplemented(
               "typed table '{}': its gradient passes through '{}' before the update, which "
               "servers cannot do",
               param, writer->type().str())
        .at(writer->location());
  }
  found.sum = writer;
  for (const Op* const grad : found.grads) {
    if (!writer->reads(grad->first_output("W@GRAD")))
      return Unimplemented("typed table '{}': not all of its gradients are added up", param)
          .at(writer->location());
  }
  return Ok();
}

// The gradient disappears from the program.
Status check_grad_readers(const Block& block, const std::string& param, const Embedding& found) {
  std::vector<llvm::StringRef> gone{found.optimizer->first_input("Grad")};
  for (const Op* const grad : found.grads) gone.push_back(grad->first_output("W@GRAD"));
  for (const llvm::StringRef name : gone) {
    for (const Op* const reader : block.readers_of(name)) {
      if (reader == found.optimizer || reader == found.sum) continue;
      return Unimplemented(
                 "typed table '{}': '{}' reads its gradient '{}', which only servers have", param,
                 reader->type().str(), name.str())
          .at(reader->location());
    }
  }
  return Ok();
}

// Refuses inputs of adam that its rule lacks, and state that starts in another way than that of the
// rule.
Status check_adam(const Block& startup, const Op& op, const std::string& param) {
  const std::pair<llvm::StringRef, float> starts[] = {
      {"Moment1", 0.0F},
      {"Moment2", 0.0F},
      {"Beta1Pow", get_attr_or<float>(op, "beta1", 0.9F)},
      {"Beta2Pow", get_attr_or<float>(op, "beta2", 0.999F)}};
  for (const Slot& slot : op.inputs()) {
    const llvm::StringRef name = op.name_of(slot.name);
    if (slot.args.empty() || name == "Param" || name == "Grad" || name == "LearningRate") continue;
    const auto* const start =
        llvm::find_if(starts, [&](const auto& each) { return each.first == name; });
    const Op* const writer = startup.last_writer(op.first_input(name));
    if (start != std::end(starts) && (writer == nullptr || filled_value(writer) == start->second))
      continue;
    return Unimplemented(
               "typed table '{}': {} of adam {} its rule on servers", param, name.str(),
               start == std::end(starts) ? "is no input of" : "starts differently than in")
        .at(op.location());
  }
  return Ok();
}

StatusOr<double> learning_rate(const Block& main, const Block& startup, const Embedding& found,
                               const std::string& param) {
  const std::string name = found.optimizer->first_input("LearningRate").str();
  const std::optional<float> rate = filled_value(startup.last_writer(name));
  if (main.has_writers(name) || !rate) {
    return Unimplemented(
        "typed table '{}': its learning rate '{}' is computed by the program; tables take a "
        "constant (fill_constant in the startup program)",
        param, name);
  }
  return double{*rate};
}

// The initializer in the notation of tables; empty for ops that tables do not support.
std::string initializer_of(const Block& startup, const std::string& param) {
  const Op* const op = startup.last_writer(param);
  if (op == nullptr) return {};
  const auto number = [&](const char* name) { return get_attr_or<float>(*op, name, 0); };
  const int32_t seed = get_attr_or<int32_t>(*op, "seed", 0);
  if (op->type() == "uniform_random")
    return fmt::format("uniform_random&{}&{}&{}", seed, number("min"), number("max"));
  if (op->type() == "gaussian_random" || op->type() == "truncated_gaussian_random")
    return fmt::format("{}&{}&{}&{}", op->type().str(), seed, number("mean"), number("std"));
  if (const std::optional<float> value = filled_value(op))
    return fmt::format("fill_constant&{}", *value);
  return {};
}

// Removes the optimizer state, which only the table keeps.
void erase_state(Block& main, Block& startup, Op& optimizer) {
  std::vector<std::string> names;
  for (const llvm::StringRef name : optimizer.input_names()) {
    if (name == optimizer.first_input("Param") || name == optimizer.first_input("Grad") ||
        name == optimizer.first_input("LearningRate"))
      continue;
    const Var* const var = main.find_var(name);
    if (var != nullptr && var->persistable()) names.push_back(name.str());
  }
  main.erase(optimizer);
  for (const std::string& name : names) {
    for (Op* const op : main.writers_of(name)) main.erase(*op);  // powers of betas
    for (Op* const op : startup.writers_of(name)) startup.erase(*op);
    if (Var* const var = main.find_var(name)) main.erase(*var);
    if (Var* const var = startup.find_var(name)) startup.erase(*var);
  }
}

// Inserts a constant for all instances at the start; all tables share it.
std::string fill_first(Block& main, std::string name, float value) {
  const auto writers = main.writers_of(name);
  if (writers.size() == 1 && filled_value(writers.front()) == value &&
      main.find_var(name)->dims() == llvm::ArrayRef<int64_t>({1}))
    return name;
  if (main.find_var(name) != nullptr) return fill_first(main, name + "@TABLE", value);
  main.declare(name, VarSpec::tensor(DType::kFloat32, {1}));
  Op& op = main.insert_before(&main.front(), "fill_constant");
  op.set_output("Out", name)
      .set_attr("shape", AttrValue::of_longs({1}))
      .set_int("dtype", 5)
      .set_float("value", value);
  finish(op, role::kForward);
  return name;
}

Status put_lookup(Block& main, const TypedTableUse& use, const Embedding& found) {
  std::vector<std::string> ids;
  std::vector<std::string> outputs;
  Op* producer = nullptr;
  for (Op* const op : found.lookups) {
    ids.push_back(op->first_input("Ids").str());
    outputs.push_back(op->first_output("Out").str());
    Op* const writer = main.last_writer(ids.back());
    if (writer != nullptr && (producer == nullptr || producer->comes_before(*writer)))
      producer = writer;
  }
  for (const std::string& output : outputs) {
    for (const Op* const reader : main.readers_of(output)) {
      if (producer == nullptr || (reader != producer && producer->comes_before(*reader))) continue;
      return InvalidProgram("'{}' is read before all ids of table '{}' are known", output,
                            use.param)
          .at(reader->location());
    }
  }
  const Op& first = *found.lookups.front();
  Op& op = producer == nullptr ? main.insert_before(&main.front(), "distributed_lookup_table")
                               : main.insert_after(*producer, "distributed_lookup_table");
  op.set_input("Ids", ids)
      .set_input("W", use.param)
      .set_output("Outputs", outputs)
      .set_int("table_id", use.table_id)
      .set_bool("is_distributed", get_attr_or(first, "is_distributed", false))
      .set_attr("padding_idx", AttrValue::of_long(get_attr_or<int64_t>(first, "padding_idx", -1)))
      .set_string("lookup_table_version", first.type().str())
      .set_int("dtype", 5);
  finish(op, role::kForward);
  return Ok();
}

void put_push(Block& main, const TypedTableUse& use, const TypedTableFacts& facts,
              const Embedding& found, const std::string& shows, const std::string& clicks) {
  std::vector<std::string> ids;
  std::vector<std::string> grads;
  for (const Op* const op : found.grads) {
    ids.push_back(op->first_input("Ids").str());
    grads.push_back(op->first_input("Out@GRAD").str());
  }
  Op& op = main.insert_after(found.sum != nullptr ? *found.sum : *found.grads.back(),
                             "distributed_push_sparse");
  op.set_input("Ids", ids)
      .set_input("Shows", shows)
      .set_input("Clicks", clicks)
      .set_output("Outputs", grads)
      .set_int("table_id", use.table_id)
      .set_int("size", static_cast<int32_t>(facts.width))
      .set_attr("padding_idx", AttrValue::of_long(facts.padding))
      .set_bool("use_cvm_op", use.use_cvm)
      .set_int("dtype", 5);
  finish(op, role::kBackward);
}

StatusOr<TypedTableFacts> facts_of(const Block& main, const Block& startup,
                                   const std::string& param, const Embedding& found) {
  TypedTableFacts facts;
  const Var* const var = main.find_var(param);
  if (var == nullptr || var->dims().size() != 2 || var->dims()[1] < 1)
    return InvalidArgument("sparse_tables: '{}' is not a matrix of the program", param);
  facts.height = var->dims()[0];
  facts.width = var->dims()[1];
  facts.padding = get_attr_or<int64_t>(*found.lookups.front(), "padding_idx", -1);
  facts.optimizer = found.optimizer->type().str();
  MILLRACE_ASSIGN_OR_RETURN(facts.learning_rate, learning_rate(main, startup, found, param));
  facts.beta1 = get_attr_or<float>(*found.optimizer, "beta1", 0.9F);
  facts.beta2 = get_attr_or<float>(*found.optimizer, "beta2", 0.999F);
  facts.epsilon = get_attr_or<float>(*found.optimizer, "epsilon", 1e-8F);
  facts.initializer = initializer_of(startup, param);
  return facts;
}

}  // namespace
}  // namespace typed_tables

StatusOr<TypedTableFacts> use_typed_table(Program& main, Program& startup,
                                          const TypedTableUse& use) {
  using namespace typed_tables;
  Block& block = main.root();
  Embedding found;
  MILLRACE_RETURN_IF_ERROR(sort_ops(block, use.param, found));
  MILLRACE_RETURN_IF_ERROR(find_sum(block, use.param, found));
  MILLRACE_RETURN_IF_ERROR(check_grad_readers(block, use.param, found));
  if (found.optimizer->type() == "adam")
    MILLRACE_RETURN_IF_ERROR(check_adam(startup.root(), *found.optimizer, use.param));
  MILLRACE_ASSIGN_OR_RETURN(const TypedTableFacts facts,
                            facts_of(block, startup.root(), use.param, found));
  MILLRACE_RETURN_IF_ERROR(put_lookup(block, use, found));
  const std::string shows = use.show_var.empty() ? fill_first(block, "show", 1) : use.show_var;
  const std::string clicks = use.click_var.empty() ? fill_first(block, "clk", 0) : use.click_var;
  for (const std::string& name : {shows, clicks}) {
    if (block.find_var(name) == nullptr)
      return InvalidArgument(
          "sparse_tables: '{}' names the var '{}', which the program does not have", use.param,
          name);
  }
  put_push(block, use, facts, found, shows, clicks);
  std::vector<std::string> gone{found.optimizer->first_input("Grad").str()};
  for (Op* const op : found.grads) {
    gone.push_back(op->first_output("W@GRAD").str());
    block.erase(*op);
  }
  for (Op* const op : found.lookups) block.erase(*op);
  if (found.sum != nullptr) block.erase(*found.sum);
  erase_state(block, startup.root(), *found.optimizer);
  for (const std::string& name : gone) {
    if (Var* const var = block.find_var(name)) block.erase(*var);
  }
  return facts;
}

}  // namespace millrace::transpiler
