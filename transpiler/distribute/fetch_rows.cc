#include "transpiler/distribute/fetch_rows.h"

#include "transpiler/distribute/pserver_passes.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// How a loss names what belongs to its weight.
struct LossForm {
  llvm::StringLiteral type;
  llvm::StringLiteral weight;
  llvm::StringLiteral lister;   // the op that lists the rows that a step needs
  llvm::StringLiteral listed;   // its output
  llvm::StringLiteral numbers;  // the input of the loss that takes the list
  llvm::StringLiteral marker;   // an output of the loss that its gradient op reads
};
constexpr LossForm kNce = {"nce",          "Weight",  "sample_classes",
                           "SampleLabels", "Classes", "SampleLogits"};
constexpr LossForm kTree = {"hierarchical_sigmoid", "W", "tree_nodes", "Nodes", "Nodes", "PreOut"};

std::string unused_name(const Block& block, const std::string& base) {
  std::string name = base;
  for (int i = 1; block.find_var_recursive(name) != nullptr; ++i)
    name = base + "_" + std::to_string(i);
  return name;
}

// Inputs and attributes of the loss that the listing op has, too.
void list_rows(Op& lister, const Op& loss, const LossForm& form, const std::string& rows) {
  for (const char* const slot : {"Label", "CustomDistProbs", "CustomDistAlias",
                                 "CustomDistAliasProbs", "PathTable", "PathCode"}) {
    if (!loss.first_input(slot).empty()) lister.set_input(slot, loss.first_input(slot));
  }
  for (const char* const name : {"num_total_classes", "num_neg_samples", "sampler", "seed",
                                 "custom_neg_classes", "num_classes"}) {
    if (const AttrValue* const value = loss.find_attr(name)) lister.set_attr(name, *value);
  }
  lister.set_output(form.listed, rows);
  finish(lister, role::kForward);
}

void read_rows(Op& op, const LossForm& form, const std::string& rows,
               const std::vector<int64_t>& sections) {
  op.remove_input(form.weight);
  op.set_input("Rows", rows);
  op.set_attr("height_sections", AttrValue::of_longs(sections));
}

void fetch_rows(Block& block, const DistributionJob& job, const ParamGrad& table, Op& loss,
                const LossForm& form) {
  const DType dtype = table.dtype;
  const bool is_nce = form.type == "nce";
  const std::string numbers =
      is_nce ? loss.first_output("SampleLabels").str() : unused_name(block, table.param + "@NODES");
  if (!is_nce) block.declare(numbers, VarSpec::tensor(DType::kInt64, {-1, -1}));
  const std::string rows = unused_name(block, table.param + "@ROWS");
  block.declare(rows, VarSpec::tensor(dtype, {-1, -1, block.find_var(table.param)->dims().back()}));
  list_rows(block.insert_before(&loss, form.lister), loss, form, numbers);
  Op& lookup = block.insert_before(&loss, "distributed_lookup_table");
  lookup.set_input("Ids", numbers)
      .set_input("W", llvm::StringRef(table.param))
      .set_output("Outputs", rows);
  describe_remote_lookup(lookup, job, table, -1, "lookup_table_v2");
  std::vector<int64_t> sections;
  for (const PlacedSlice& placed : table.slices) sections.push_back(placed.grad_dims[0]);
  for (Op& op : block.ops()) {
    if (op.type() != std::string(form.type) + "_grad" ||
        op.first_input(form.weight) != table.param ||
        op.first_input(form.marker) != loss.first_output(form.marker))
      continue;
    read_rows(op, form, rows, sections);
    if (!is_nce) op.set_input("Nodes", numbers);
  }
  loss.remove_output(is_nce ? "SampleLabels" : "W_Out");
  read_rows(loss, form, rows, sections);
  loss.set_input(form.numbers, numbers);
}

}  // namespace

void describe_remote_lookup(Op& lookup, const DistributionJob& job, const ParamGrad& table,
                            int64_t padding, const std::string& form) {
  std::vector<std::string> names;
  std::vector<std::string> endpoints;
  std::vector<int64_t> sections;
  for (const PlacedSlice& placed : table.slices) {
    names.push_back(placed.param);
    endpoints.push_back(job.endpoints[static_cast<size_t>(placed.endpoint)]);
    sections.push_back(placed.grad_dims.empty() ? 1 : placed.grad_dims[0]);
  }
  lookup.set_strings("table_names", std::move(names))
      .set_attr("height_sections", AttrValue::of_longs(std::move(sections)))
      .set_strings("endpoints", std::move(endpoints))
      .set_attr("padding_idx", AttrValue::of_long(padding))
      .set_int("trainer_id", static_cast<int32_t>(job.arguments.trainer_id))
      .set_string("lookup_table_version", form);
  finish(lookup, role::kForward);
}

void fetch_rows_of_losses(Block& block, DistributionJob& job, const ParamGrad& table) {
  std::vector<Op*> others;
  for (Op* const op : job.prefetch_lookups) {
    const LossForm* form = nullptr;
    for (const LossForm* const each : {&kNce, &kTree}) {
      if (op->type() == each->type && op->first_input(each->weight) == table.param) form = each;
    }
    if (form == nullptr) {
      others.push_back(op);
    } else {
      fetch_rows(block, job, table, *op, *form);
    }
  }
  job.prefetch_lookups = std::move(others);
}

}  // namespace millrace::transpiler
