// Loops, branches and arrays of tensors.

#include <algorithm>
#include <set>

#include "framework/base/errors.h"
#include "framework/block.h"
#include "interchange/pir/rows.h"
#include "interchange/source_program.h"

namespace millrace::interchange::pir {
namespace {

// Tensors and arrays of outer blocks that the ops of a block write.
std::set<std::string> outer_writes(const Block& block) {
  std::set<std::string> names;
  const auto add = [&](const std::string& name) {
    const Var* const var = block.find_var_recursive(name);
    if (block.find_var(name) != nullptr || var == nullptr) return;
    if (var->kind() == VarKind::kLodTensor || var->kind() == VarKind::kLodTensorArray)
      names.insert(name);
  };
  for (const Op& op : block.ops()) {
    const Block* const inner = owned_block(op);
    if (inner == nullptr) {
      for (const llvm::StringRef name : op.output_names()) add(name.str());
    } else {
      for (const std::string& name : outer_writes(*inner)) add(name);
    }
  }
  return names;
}

TensorType declared_type(const Var& var) {
  return {.dtype = var.dtype(),
          .dims = Dims(var.dims().begin(), var.dims().end()),
          .is_array = var.kind() == VarKind::kLodTensorArray};
}

// The value of a var that no op has set yet: reading it is an error in the original.
Value placeholder(OpContext& c, const TensorType& type) {
  if (type.is_array) return c.node("create_array", {}, {of_dtype("dtype", type.dtype)}, type);
  std::vector<int64_t> dims(type.dims.begin(), type.dims.end());
  for (int64_t& dim : dims) dim = std::max<int64_t>(dim, 1);
  return c.full(0, type.dtype, dims, /*on_host=*/false);
}

// Unknown extents where two declarations of the same value differ. False if their ranks differ.
bool join_dims(Dims& dims, llvm::ArrayRef<int64_t> other) {
  if (dims.size() != other.size()) return false;
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != other[i]) dims[i] = -1;
  return true;
}

// The vars that leave a block. Arrays are changed in place: they only need to exist before.
struct Leaving {
  std::vector<Var*> vars;
  std::vector<Value> before;  ///< their values before the block
};

StatusOr<Leaving> leaving_vars(OpContext& c, const std::set<std::string>& names) {
  Leaving leaving;
  for (const std::string& name : names) {
    Var* const var = c.op().block().find_var_recursive(name);
    if (var->kind() == VarKind::kLodTensorArray) {
      if (!c.vars().contains(name)) c.vars()[name] = placeholder(c, declared_type(*var));
      continue;
    }
    if (var->lod_level() > 0)
      return c.refuse("'" + name + "' has LoD, which values of blocks lose in PIR");
    leaving.vars.push_back(var);
    const auto found = c.vars().find(name);
    leaving.before.push_back(found == c.vars().end() ? placeholder(c, declared_type(*var))
                                                     : found->second);
  }
  return leaving;
}

// Values of the vars after the block was converted.
std::vector<Value> values_after(OpContext& c, const Leaving& leaving) {
  std::vector<Value> values;
  for (size_t i = 0; i < leaving.vars.size(); ++i) {
    const auto found = c.vars().find(leaving.vars[i]->name().str());
    values.push_back(found == c.vars().end() ? leaving.before[i] : found->second);
  }
  return values;
}

// Extents that an iteration changes are unknown in the whole loop.
Status settle_dims(OpContext& c, const Leaving& leaving, Block& body) {
  std::vector<Dims> dims;
  for (size_t i = 0; i < leaving.vars.size(); ++i) dims.push_back(leaving.before[i].type().dims);
  for (bool is_settled = false; !is_settled;) {
    for (size_t i = 0; i < dims.size(); ++i) leaving.vars[i]->set_dims(dims[i]);
    MILLRACE_RETURN_IF_ERROR(c.infer_block(body));
    is_settled = true;
    for (size_t i = 0; i < dims.size(); ++i) {
      const Dims before = dims[i];
      if (!join_dims(dims[i], leaving.vars[i]->dims()))
        return c.refuse("a loop that changes the rank of '" + leaving.vars[i]->name().str() + "'");
      is_settled = is_settled && before == dims[i];
    }
  }
  for (size_t i = 0; i < dims.size(); ++i) leaving.vars[i]->set_dims(dims[i]);
  return Ok();
}

// The op's slots name what the blocks read and write; the blocks themselves say it as well.
void note_block_slots(OpContext& c) {
  for (const char* slot : {"X", "Input", "Condition", "Cond"}) c.note_input_slot(slot);
  for (const char* slot : {"Out", "StepScopes", "Scope"}) c.note_output_slot(slot);
  c.ignore({"sub_block", "skip_eager_deletion_vars", "is_test", "is_scalar_condition"});
}

Status while_loop(OpContext& c) {
  note_block_slots(c);
  Block& body = *owned_block(c.op());
  const std::string condition = c.op().first_input("Condition").str();
  std::set<std::string> names = outer_writes(body);
  if (names.erase(condition) == 0) return c.refuse("a loop that does not set its condition");
  MILLRACE_ASSIGN_OR_RETURN(const Leaving leaving, leaving_vars(c, names));
  MILLRACE_RETURN_IF_ERROR(settle_dims(c, leaving, body));
  std::vector<Value> inputs = {c.vars()[condition]};
  std::vector<TensorType> types;
  for (size_t i = 0; i < leaving.vars.size(); ++i) {
    inputs.push_back(leaving.before[i]);
    types.push_back(declared_type(*leaving.vars[i]));
  }
  const VarValues outer = c.vars();
  const std::vector<Value> arguments = c.graph().begin_region(types);
  for (size_t i = 0; i < arguments.size(); ++i)
    c.vars()[leaving.vars[i]->name().str()] = arguments[i];
  MILLRACE_RETURN_IF_ERROR(c.convert_block(body));
  std::vector<Value> next = values_after(c, leaving);
  next.insert(next.begin(), c.vars()[condition]);
  c.graph().add("2.yield", next, {}, {});
  const std::string region = c.graph().end_region();
  c.vars() = outer;
  std::vector<Value> results;
  results.reserve(types.size());
  for (const TensorType& type : types) results.push_back(result_of(type));
  results = c.graph().add("1.while", inputs, {}, std::move(results), {region});
  for (size_t i = 0; i < results.size(); ++i) c.vars()[leaving.vars[i]->name().str()] = results[i];
  return Ok();
}

Status branch(OpContext& c) {
  note_block_slots(c);
  if (!c.attr<bool>("is_scalar_condition"))
    return c.refuse("a branch that runs if its inputs have elements");
  Block& body = *owned_block(c.op());
  const Value condition = c.in("Cond");
  MILLRACE_ASSIGN_OR_RETURN(const Leaving leaving, leaving_vars(c, outer_writes(body)));
  const VarValues outer = c.vars();
  c.graph().begin_region({});
  MILLRACE_RETURN_IF_ERROR(c.convert_block(body));
  const std::vector<Value> after = values_after(c, leaving);
  c.graph().add("2.yield", after, {}, {});
  const std::string taken = c.graph().end_region();
  c.vars() = outer;
  c.graph().begin_region({});
  c.graph().add("2.yield", leaving.before, {}, {});
  const std::string skipped = c.graph().end_region();
  std::vector<Value> results;
  for (size_t i = 0; i < after.size(); ++i) {
    TensorType type = after[i].type();
    // A value that only this branch sets is read only if the branch was taken.
    if (outer.contains(leaving.vars[i]->name().str()) &&
        !join_dims(type.dims, leaving.before[i].type().dims))
      return c.refuse("a branch that changes the rank of '" + leaving.vars[i]->name().str() + "'");
    leaving.vars[i]->set_dims(type.dims);
    results.push_back(result_of(std::move(type)));
  }
  results = c.graph().add("1.if", {condition}, {}, std::move(results), {taken, skipped});
  for (size_t i = 0; i < results.size(); ++i) c.vars()[leaving.vars[i]->name().str()] = results[i];
  return Ok();
}

// One of several values; their extents may differ.
Status select_input(OpContext& c) {
  std::vector<Value> inputs = c.ins("X");
  TensorType type = c.out_type("Out");
  for (const Value& value : inputs)
    if (!join_dims(type.dims, value.type().dims)) return c.refuse("values of different ranks");
  inputs.insert(inputs.begin(), c.in("Mask"));
  if (Var* const var = c.op().block().find_var_recursive(c.op().first_output("Out")))
    var->set_dims(type.dims);
  c.set("Out", c.node("select_input", inputs, {}, type));
  return Ok();
}

Status write_to_array(OpContext& c) {
  const std::string name = c.op().first_output("Out").str();
  const Value x = c.in("X");
  const Value index = c.in("I");
  const TensorType type{.dtype = x.type().dtype, .dims = x.type().dims, .is_array = true};
  if (!c.vars().contains(name)) c.vars()[name] = placeholder(c, type);
  c.node("array_write_", {c.vars()[name], x, index}, {}, type);
  c.note_output_slot("Out");
  return Ok();
}

Status read_from_array(OpContext& c) {
  c.set("Out", c.node("array_read", {c.in("X"), c.in("I")}, {}, c.out_type("Out")));
  return Ok();
}

Status array_length(OpContext& c) {
  c.set("Out", c.node("array_length", {c.in("X")}, {}, {.dtype = DType::kInt64, .dims = {1}}));
  return Ok();
}

Status join_array(OpContext& c) {
  const std::vector<Value> results = c.nodes(
      "array_to_tensor", {c.in("X")},
      {of_i32("axis", c.attr<int64_t>("axis")), of_bool("use_stack", c.attr<bool>("use_stack"))},
      {result_of(c.out_type("Out")), result_of({.dtype = DType::kInt32, .dims = {-1}})});
  c.set("Out", results[0]);
  c.set("OutIndex", results[1]);
  return Ok();
}

}  // namespace

void add_control_flow_ops(Converters& table) {
  table.functions["while"] = while_loop;
  table.functions["conditional_block"] = branch;
  table.functions["select_input"] = select_input;
  table.functions["write_to_array"] = write_to_array;
  table.functions["read_from_array"] = read_from_array;
  table.functions["lod_array_length"] = array_length;
  table.functions["tensor_array_to_tensor"] = join_array;
}

}  // namespace millrace::interchange::pir
