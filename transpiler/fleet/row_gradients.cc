#include "transpiler/fleet/row_gradients.h"

#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "framework/op_attrs.h"
#include "transpiler/distribute/op_builder.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace row_gradients {
namespace {

// True for selected rows that no op creates any more: their lookups are on the servers.
bool is_left(const Block& block, llvm::StringRef name) {
  const Var* const var = block.find_var(name);
  if (var == nullptr || var->kind() != VarKind::kSelectedRows) return false;
  if (var->persistable()) return false;  // an embedding that is declared as rows
  // ops that change it in place (clipping by global norm) do not create it
  return llvm::all_of(block.writers_of(name), [&](const Op* op) { return op->reads(name); });
}

// True for the sum of gradients of which no op creates any.
bool is_left_sum(const Block& block, const Op& op) {
  return op.type() == "sum" &&
         llvm::all_of(op.input("X"), [&](llvm::StringRef name) { return is_left(block, name); });
}

void drop_sums(Block& block) {
  for (Op* const op : block.op_vector()) {
    if (is_left_sum(block, *op)) block.erase(*op);
  }
}

// The op that reads the rows to which the gradients are pushed; null if there is none.
const Op* find_lookup(const Block& block, const Op& push) {
  const auto table = get_attr_or<int32_t>(push, "table_id", 0);
  for (const Op& op : block.ops()) {
    if (op.type() == "distributed_lookup_table" && get_attr_or<int32_t>(op, "table_id", 0) == table)
      return &op;
  }
  return nullptr;
}

Op* first_reader(const Block& block, llvm::StringRef name) {
  Op* first = nullptr;
  for (Op* const op : block.readers_of(name)) {
    if (first == nullptr || op->comes_before(*first)) first = op;
  }
  return first;
}

// What is to be computed again, and before which op.
struct Left {
  Op* where = nullptr;  // null: no op needs it
  std::vector<std::string> terms;
};

// Several lookups of a table have a sum.
Left find_left(const Block& block, const std::string& gradient) {
  Op* const reader = first_reader(block, gradient);
  if (reader == nullptr) return {};
  if (is_left(block, gradient)) return {reader, {gradient}};
  Op* const sum = block.first_writer(gradient);
  Left left;
  if (sum == nullptr || !is_left_sum(block, *sum)) return left;
  left.where = sum;
  for (const llvm::StringRef term : sum->input("X")) left.terms.push_back(term.str());
  return left;
}

// The push has the gradient among its outputs, but does not write it.
Status check_term(const Block& block, const Op& push, llvm::StringRef gradient, const Op& where) {
  const auto writers = block.writers_of(gradient);
  const bool is_here =
      llvm::any_of(writers, [&](const Op* op) { return op != &push; }) &&
      llvm::all_of(writers, [&](const Op* op) { return op == &push || op->comes_before(where); });
  if (is_here) return Ok();
  return Unimplemented("'{}' needs the gradient of a table before '{}' is computed",
                       where.type().str(), gradient.str())
      .at(where.location());
}

// Puts the gradient of one lookup before the op that needs it.
void put_gradient(Block& block, Op& where, const Op& lookup, llvm::StringRef ids,
                  llvm::StringRef gradient, const std::string& out) {
  const auto type = get_attr_or<std::string>(lookup, "lookup_table_version", "lookup_table");
  Op& op = block.insert_before(&where, type + "_grad");
  op.set_input("W", lookup.first_input("W"))
      .set_input("Ids", ids)
      .set_input("Out@GRAD", gradient)
      .set_output("W@GRAD", out)
      .set_bool("is_sparse", true)
      .set_attr("padding_idx", AttrValue::of_long(get_attr_or<int64_t>(lookup, "padding_idx", -1)));
  finish(op, role::kBackward);
}

Status check_push(const Op& push, const Op& lookup, const Left& left) {
  const std::string param = lookup.first_input("W").str();
  if (get_attr_or(push, "use_cvm_op", false))
    return Unimplemented(
               "'{}' changes the gradient of '{}', which begins with shows and clicks (op cvm)",
               left.where->type().str(), param)
        .at(left.where->location());
  if (push.output("Outputs").size() == left.terms.size()) return Ok();
  return Unimplemented("'{}' has {} lookups on servers, but its gradient has {} terms", param,
                       push.output("Outputs").size(), left.terms.size())
      .at(left.where->location());
}

Status restore(Block& block, Op& push) {
  const Op* const lookup = find_lookup(block, push);
  const std::string whole = lookup == nullptr ? "" : names::grad(lookup->first_input("W"));
  const Left left = lookup == nullptr ? Left() : find_left(block, whole);
  if (left.where == nullptr) {
    if (push.first_input("Grads").empty()) return Ok();
    return Unimplemented("'{}' is to be pushed, but is not computed from the gradient of a lookup",
                         push.first_input("Grads").str())
        .at(push.location());
  }
  MILLRACE_RETURN_IF_ERROR(check_push(push, *lookup, left));
  const auto ids = push.input("Ids");
  const auto gradients = push.output("Outputs");
  for (size_t k = 0; k < gradients.size(); ++k) {
    MILLRACE_RETURN_IF_ERROR(check_term(block, push, gradients[k], *left.where));
    put_gradient(block, *left.where, *lookup, ids[k], gradients[k], left.terms[k]);
  }
  if (push.first_input("Grads").empty()) push.set_input("Grads", whole);
  push.remove_output("Outputs");
  return Ok();
}

}  // namespace
}  // namespace row_gradients

std::string gradient_of_update(const Block& block, llvm::StringRef param) {
  for (const Op* const op : block.readers_of(param)) {
    if (role::is_optimize_op(*op) && role::is_optimizer(*op)) return op->first_input("Grad").str();
  }
  return {};
}

Status restore_row_gradients(Program& main) {
  using namespace row_gradients;
  Block& block = main.root();
  for (Op* const op : block.op_vector()) {
    if (op->type() == "distributed_push_sparse") MILLRACE_RETURN_IF_ERROR(restore(block, *op));
  }
  drop_sums(block);
  for (const Op& op : block.ops()) {
    for (const llvm::StringRef name : op.input_names()) {
      if (!is_left(block, name)) continue;
      return Unimplemented("'{}' needs the gradient '{}' of a table, which is only on servers",
                           op.type().str(), name.str())
          .at(op.location());
    }
  }
  return Ok();
}

}  // namespace millrace::transpiler
