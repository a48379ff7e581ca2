#include "interchange/imported_model.h"

#include <utility>
#include <vector>

#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "ops/verify.h"
#include "transpiler/roles.h"

namespace millrace::interchange {
namespace {

void drop_unused(Block& block, io::ParamValues& params) {
  std::vector<Op*> ops = block.op_vector();
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    if ((*op)->type() == "feed" || (*op)->type() == "fetch") continue;
    const bool is_read = llvm::any_of((*op)->output_names(), [&](llvm::StringRef name) {
      return llvm::any_of(block.readers_of(name), [&](const Op* r) { return r != *op; });
    });
    if (!is_read) block.erase(**op);
  }
  std::vector<Var*> unused;
  for (Var& var : block.vars())
    if (!block.has_readers(var.name()) && !block.has_writers(var.name())) unused.push_back(&var);
  for (Var* const var : unused) {
    params.erase(var->name().str());
    block.erase(*var);
  }
}

}  // namespace

bool is_reserved_name(llvm::StringRef name) {
  return name.empty() || name == "feed" || name == "fetch" || name == "@EMPTY@";
}

void declare_holder(Block& block, llvm::StringRef name) {
  VarSpec spec = VarSpec::shapeless(name == "feed" ? VarKind::kFeedMinibatch : VarKind::kFetchList);
  spec.persistable = true;
  block.declare(name, std::move(spec));
}

void append_link(Block& block, const char* type, const std::string& from, const std::string& to,
                 int32_t column) {
  Op& op = block.append_op(type);
  op.set_input("X", from).set_output("Out", to);
  op.set_int("col", column).set_int("op_role", transpiler::role::kForward);
}

Status name_output(Block& block, const std::string& name, const std::string& var,
                   const char* format) {
  if (var == name && block.has_writers(name)) return Ok();
  if (var == name)
    return Unimplemented("import of {}: the output '{}' is an input or a constant", format, name);
  const Var& from = *block.find_var(var);
  block.declare(name, VarSpec::tensor(from.dtype(), from.dims()));
  block.append_op("assign").set_input("X", var).set_output("Out", name);
  return Ok();
}

StatusOr<ImportedModel> finish_import(const ops::OpRegistry& registry,
                                      std::unique_ptr<Program> program, io::ParamValues params) {
  drop_unused(program->root(), params);
  MILLRACE_RETURN_IF_ERROR(ops::check_program(registry, *program));
  return ImportedModel{std::move(program), std::move(params)};
}

Status set_fitting(const ops::OpRegistry& registry, Op& op, const char* name,
                   const AttrValue& value, const char* format) {
  const ops::OpDef* const def = registry.find(op.type());
  const ops::AttrDef* declared = def == nullptr ? nullptr : def->find_attr(name);
  for (const ops::AttrDef& common : registry.common_attrs())
    if (declared == nullptr && common.name == name) declared = &common;
  if (declared == nullptr) return Internal("op {} has no attribute {}", op.type().str(), name);
  const auto converted = convert_attr(value, declared->kind);
  if (!converted)
    return Unimplemented("import of {}: a number that attribute {} of {} cannot hold", format, name,
                         op.type().str());
  op.set_attr(name, *converted);
  return Ok();
}

}  // namespace millrace::interchange
