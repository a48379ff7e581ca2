#include "ops/construct/builder.h"

#include <cassert>

#include <fmt/format.h>

#include "ops/construct/default_attrs.h"
#include "ops/infer_shapes.h"

namespace millrace::ops {
namespace {

bool has_sub_block(const Op& op) {
  return op.has_attr("sub_block");
}

// If no input of an op has a gradient, its outputs have none either. Ops with a sub-block are
// excluded: the flags of their outputs stay as declared.
void pass_stop_gradient(const Op& op) {
  if (has_sub_block(op)) return;
  Block& block = op.block();
  for (const llvm::StringRef name : op.input_names()) {
    const Var* const var = block.find_var_recursive(name);
    if (var != nullptr && !var->stop_gradient()) return;
  }
  for (const llvm::StringRef name : op.output_names()) {
    if (const Var* const var = block.find_var_recursive(name))
      Builder::stop_gradient(var->block(), name);
  }
}

}  // namespace

Builder::Builder(const OpRegistry& registry, Program& main, Program& startup)
    : registry_(registry), main_(main), startup_(startup) {
  names_.continue_after(main);
  names_.continue_after(startup);
}

Block& Builder::enter_block() {
  current_ = main_.add_block(current_).index();
  return block();
}

void Builder::leave_block() {
  assert(current_ > 0);
  current_ = block().parent();
}

StatusOr<Op*> Builder::append(const NewOp& op) {
  return finish(block().append_op(op.type), op, /*is_main=*/true);
}

StatusOr<Op*> Builder::prepend(const NewOp& op) {
  Block& target = main_.root();
  Op* const first = target.op_count() == 0 ? nullptr : &target.front();
  return finish(target.insert_before(first, op.type), op, /*is_main=*/true);
}

StatusOr<Op*> Builder::append_startup(const NewOp& op) {
  return finish(startup_.root().append_op(op.type), op, /*is_main=*/false);
}

StatusOr<Op*> Builder::finish(Op& op, const NewOp& from, bool is_main) {
  for (const auto& [slot, args] : from.inputs)
    op.set_input(slot, llvm::ArrayRef<std::string>(args));
  for (const auto& [slot, args] : from.outputs)
    op.set_output(slot, llvm::ArrayRef<std::string>(args));
  for (const auto& [name, value] : from.attrs) op.set_attr(name, value);
  add_default_attrs(registry_, op);
  op.set_int("op_role", is_main ? marks_.role : kRoleForward)
      .set_strings("op_role_var", is_main ? marks_.role_vars : std::vector<std::string>{})
      .set_string("op_namescope", marks_.scope)
      .set_string("op_device", marks_.device);
  if (!marks_.callstack.empty()) op.set_strings("op_callstack", marks_.callstack);
  MILLRACE_RETURN_IF_ERROR(check_attr_values(registry_, op));
  MILLRACE_RETURN_IF_ERROR(infer_op(registry_, op));
  pass_stop_gradient(op);
  return &op;
}

std::string Builder::layer_var(llvm::StringRef kind, DType dtype) {
  return numbered_var(names_.next(kind) + ".tmp", VarSpec::tensor(dtype, {}));
}

std::string Builder::numbered_var(llvm::StringRef key, VarSpec spec) {
  std::string name = names_.next(key);
  block().declare(name, std::move(spec));
  return name;
}

Status Builder::persistent_var(const std::string& name, DType dtype, llvm::ArrayRef<int64_t> dims,
                               double value, bool force_cpu) {
  VarSpec spec = VarSpec::tensor(dtype, dims);
  spec.persistable = true;
  if (main_.root().find_var(name) == nullptr) main_.root().declare(name, spec);
  startup_.root().declare(name, std::move(spec));
  NewOp fill("fill_constant");
  fill.output("Out", {name})
      .attr("shape", make_attr(std::vector<int64_t>(dims.begin(), dims.end())))
      .attr("dtype", make_attr(static_cast<int32_t>(dtype)))
      .attr("value", make_attr(static_cast<float>(value)))
      .attr("str_value", make_attr(number_text(value)))
      .attr("force_cpu", make_attr(force_cpu));
  StatusOr<Op*> op = append_startup(fill);
  return op.ok() ? Ok() : std::move(op).status();
}

void Builder::stop_gradient(Block& block, llvm::StringRef name) {
  Var* const var = block.find_var(name);
  if (var == nullptr || var->stop_gradient()) return;
  VarSpec spec = var->spec();
  spec.stop_gradient = true;
  var->set_spec(std::move(spec));
}

std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  const bool is_whole = text.find_first_not_of("-0123456789") == std::string::npos;
  return is_whole ? text + ".0" : text;
}

}  // namespace millrace::ops
