#include "transpiler/fleet/fuse_tables.h"

#include <algorithm>
#include <set>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "framework/op_attrs.h"
#include "transpiler/distribute/op_builder.h"
#include "transpiler/fleet/move_ids_forward.h"
#include "transpiler/fleet/row_gradients.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace fuse_tables_parts {
namespace {

// The lookup ops of one embedding, in block order.
struct Uses {
  std::string param;
  std::vector<Op*> ops;
};

void add_use(std::vector<Uses>& all, const std::string& param, Op& op) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Uses& uses) { return uses.param == param; });
  if (found != all.end())
    found->ops.push_back(&op);
  else
    all.push_back({param, {&op}});
}

std::vector<Uses> find_lookups(Block& block) {
  std::vector<Uses> all;
  for (Op& op : block.ops()) {
    if (is_remote_lookup(op)) add_use(all, op.first_input("W").str(), op);
  }
  return all;
}

// Lookups that were replaced: (embedding, ids).
using Fused = std::set<std::pair<std::string, std::string>>;

bool is_lookup_gradient(const Op& op) {
  return op.type() == "lookup_table_grad" || op.type() == "lookup_table_v2_grad";
}

// Gradients of those lookups, embeddings in the order of the backward part.
std::vector<Uses> find_lookup_grads(Block& block, const Fused& fused) {
  std::vector<Uses> all;
  for (Op& op : block.ops()) {
    if (!is_lookup_gradient(op)) continue;
    const std::string param = op.first_input("W").str();
    if (fused.count({param, op.first_input("Ids").str()}) != 0) add_use(all, param, op);
  }
  return all;
}

struct Lookup {
  std::vector<std::string> ids;
  std::vector<std::string> outputs;
};

Op& put_lookup(Block& block, Op* where, const SparseTablePlan& table, const Op& first,
               const Lookup& lookup) {
  Op& op = block.insert_before(where, "distributed_lookup_table");
  op.set_input("Ids", lookup.ids)
      .set_input("W", table.var.param)
      .set_output("Outputs", lookup.outputs)
      .set_bool("is_distributed", get_attr_or(first, "is_distributed", false))
      .set_bool("is_test", false)
      .set_attr("padding_idx", AttrValue::of_long(get_attr_or<int64_t>(first, "padding_idx", -1)))
      .set_int("table_id", table.table_id)
      .set_string("lookup_table_version", first.type().str())
      .set_int("dtype", static_cast<int32_t>(DType::kFloat32));
  return finish(op, role::kForward);
}

// The op that computes the last of the ids; null if no op of the block computes any.
Op* last_producer(const Block& block, const std::vector<std::string>& ids) {
  Op* last = nullptr;
  for (const std::string& name : ids) {
    Op* const writer = block.last_writer(name);
    if (writer != nullptr && (last == nullptr || last->comes_before(*writer))) last = writer;
  }
  return last;
}

bool all_ids_come_first(const Block& block, const Op* producer,
                        const std::vector<std::string>& outputs) {
  return producer == nullptr || llvm::all_of(outputs, [&](const std::string& name) {
           return llvm::all_of(block.readers_of(name), [&](const Op* reader) {
             return reader != producer && producer->comes_before(*reader);
           });
         });
}

Status fuse_lookups(Block& block, const TablePlan& plan, const Uses& uses, Fused& fused,
                    std::vector<std::string>& remarks) {
  const SparseTablePlan* const table = plan.find_sparse(uses.param);
  if (table == nullptr) {
    return InvalidProgram("'{}' is looked up on the servers, but no optimizer updates it",
                          uses.param)
        .at(uses.ops.front()->location());
  }
  MILLRACE_RETURN_IF_ERROR(common_padding(uses.ops).status());
  // their rows have other shapes, but one op looks all of them up
  for (const Op* const op : uses.ops) {
    if (op->type() != uses.ops.front()->type())
      return Unimplemented(
                 "the lookups of table '{}' are {} and {}; on servers they must be of one type",
                 uses.param, uses.ops.front()->type().str(), op->type().str())
          .at(op->location());
  }
  Lookup all;
  for (const Op* const op : uses.ops) {
    all.ids.push_back(op->first_input("Ids").str());
    all.outputs.push_back(op->first_output("Out").str());
    fused.insert({uses.param, all.ids.back()});
  }
  if (!move_ids_forward(block, all.ids, all.outputs)) {
    remarks.push_back("the lookups of '" + uses.param +
                      "' stay separate: ids of one are computed from rows of another");
  }
  Op* const producer = last_producer(block, all.ids);
  if (all_ids_come_first(block, producer, all.outputs)) {
    Op* const where = producer == nullptr ? uses.ops.front() : block.next(*producer);
    put_lookup(block, where, *table, *uses.ops.front(), all);
  } else {
    for (Op* const op : uses.ops) {
      put_lookup(block, op, *table, *uses.ops.front(),
                 {{op->first_input("Ids").str()}, {op->first_output("Out").str()}});
    }
  }
  for (Op* const op : uses.ops) block.erase(*op);
  return Ok();
}

// How often instances were shown and clicked: vars that the entry policy names, or constants.
struct Counts {
  std::string shows;
  std::string clicks;
};

Status declare_count(Block& block, const std::string& name, float value) {
  if (const Var* const var = block.find_var(name); var != nullptr) {
    if (var->dtype() != DType::kFloat32)
      return InvalidProgram(
          "the counts of the sparse tables need a float32 var '{}', but the program has one of "
          "another type; set the entry of the first table that is pushed to "
          "'show_click_entry:SHOW:CLICK' to name other show and click vars",
          name);
  }
  VarSpec spec = VarSpec::tensor(DType::kFloat32, {1});
  spec.stop_gradient = true;
  block.declare(name, std::move(spec));
  Op& op = block.insert_before(block.op_count() == 0 ? nullptr : &block.front(), "fill_constant");
  op.set_output("Out", name)
      .set_attr("shape", AttrValue::of_longs({1}))
      .set_int("dtype", static_cast<int32_t>(DType::kFloat32))
      .set_float("value", value)
      .set_int("place_type", -1);
  finish(op, role::kForward);
  return Ok();
}

// The entry of the first table determines the vars for all tables.
StatusOr<Counts> count_vars(Block& block, const Op& first, std::vector<std::string>& remarks) {
  const std::string entry = get_attr_or(first, "entry", std::string());
  llvm::SmallVector<llvm::StringRef, 3> parts;
  llvm::StringRef(entry).split(parts, ':');
  if (parts.size() == 3 && parts[0] == "show_click_entry") {
    if (block.find_var(parts[1]) != nullptr && block.find_var(parts[2]) != nullptr)
      return Counts{parts[1].str(), parts[2].str()};
    remarks.push_back(
        "the entry '" + entry +
        "' names vars that the program does not have; every instance counts as shown once");
  }
  MILLRACE_RETURN_IF_ERROR(declare_count(block, "show", 1));
  MILLRACE_RETURN_IF_ERROR(declare_count(block, "clk", 0));
  return Counts{"show", "clk"};
}

// The gradient of the update, if it is another var than that of the lookups, and no sum of those.
std::string clipped_gradient(const Block& block, const std::string& param) {
  std::string gradient = gradient_of_update(block, param);
  const Op* const writer = block.last_writer(gradient);
  const bool is_other = writer != nullptr && gradient != names::grad(param) &&
                        !is_lookup_gradient(*writer) && writer->type() != "sum";
  return is_other ? gradient : "";
}

void push(Block& block, const SparseTablePlan& table, const Uses& uses, const Counts& counts,
          bool use_cvm) {
  std::vector<std::string> ids;
  std::vector<std::string> grads;
  std::vector<int32_t> slots;
  for (const Op* const op : uses.ops) {
    slots.push_back(get_attr_or<int32_t>(*op, "slot", 0));
    ids.push_back(op->first_input("Ids").str());
    grads.push_back(op->first_input("Out@GRAD").str());
  }
  const Op& first = *uses.ops.front();
  const std::string pushed = clipped_gradient(block, uses.param);
  Op& op = block.append_op("distributed_push_sparse");
  if (!pushed.empty()) op.set_input("Grads", pushed);
  op.set_input("Ids", ids)
      .set_input("Shows", counts.shows)
      .set_input("Clicks", counts.clicks)
      .set_output("Outputs", grads)
      .set_bool("is_distributed", get_attr_or(first, "is_distributed", false))
      .set_bool("is_test", false)
      .set_attr("padding_idx", AttrValue::of_long(get_attr_or<int64_t>(first, "padding_idx", -1)))
      .set_int("table_id", table.table_id)
      .set_int("size", static_cast<int32_t>(table.dims[1]))
      .set_bool("use_cvm_op", use_cvm)
      .set_attr("slots", AttrValue::of_ints(std::move(slots)))
      .set_string("push_sparse_version", "push_sparse")
      .set_int("dtype", static_cast<int32_t>(DType::kFloat32));
  finish(op, role::kForward);
  for (Op* const grad : uses.ops) block.erase(*grad);
}

}  // namespace
}  // namespace fuse_tables_parts

Status fuse_tables(Program& main, const TablePlan& plan, std::vector<std::string>& remarks) {
  using namespace fuse_tables_parts;
  Block& block = main.root();
  Fused fused;
  // searched again each time: ops may have moved
  for (std::vector<Uses> left = find_lookups(block); !left.empty(); left = find_lookups(block))
    MILLRACE_RETURN_IF_ERROR(fuse_lookups(block, plan, left.front(), fused, remarks));
  const std::vector<Uses> grads = find_lookup_grads(block, fused);
  const bool use_cvm = llvm::any_of(block.ops(), [](const Op& op) { return op.type() == "cvm"; });
  if (grads.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const Counts counts,
                            count_vars(block, *grads.front().ops.front(), remarks));
  for (const Uses& uses : grads) push(block, *plan.find_sparse(uses.param), uses, counts, use_cvm);
  return Ok();
}

}  // namespace millrace::transpiler
