#include "ops/grad.h"

#include "framework/base/errors.h"
#include "framework/names.h"
#include "framework/program.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

constexpr llvm::StringLiteral kGradGradSuffix = "@GRAD";

std::vector<std::string> strings(llvm::ArrayRef<llvm::StringRef> names) {
  std::vector<std::string> out;
  out.reserve(names.size());
  for (const llvm::StringRef name : names) out.push_back(name.str());
  return out;
}

// Var names for a GradSpec input slot, such as "X" or "Out@GRAD".
std::vector<std::string> spec_input(const GradContext& context, const OpDef& def,
                                    llvm::StringRef slot) {
  if (slot.endswith(kGradGradSuffix))
    return context.output_grad(slot.drop_back(kGradGradSuffix.size()));
  return def.find_input(slot) != nullptr ? context.input(slot) : context.output(slot);
}

std::vector<GradOp> apply_spec(const GradContext& context, const OpDef& def) {
  const GradSpec& spec = *def.grad_spec();
  GradOp op(spec.type);
  bool any_wanted = false;
  for (const llvm::StringRef slot : spec.inputs) {
    std::vector<std::string> names = spec_input(context, def, slot);
    if (!names.empty()) op.input(slot, std::move(names));
  }
  for (const llvm::StringRef slot : spec.outputs) {
    const llvm::StringRef forward_slot = slot.drop_back(kGradGradSuffix.size());
    const SlotDef* const forward_def = def.find_input(forward_slot);
    const bool keep_places = forward_def != nullptr && (forward_def->arity == Arity::kMany ||
                                                        forward_def->arity == Arity::kAny);
    std::vector<std::string> names = context.input_grad(forward_slot, keep_places);
    any_wanted = any_wanted || !names.empty();
    op.output(slot, std::move(names));
  }
  if (!any_wanted) return {};
  const Op& forward = context.forward();
  for (const Attr& attr : forward.attrs()) op.attr(forward.name_of(attr.name), attr.value);
  return {std::move(op)};
}

}  // namespace

std::vector<std::string> GradContext::input(llvm::StringRef slot) const {
  return strings(forward_.input(slot));
}
std::vector<std::string> GradContext::output(llvm::StringRef slot) const {
  return strings(forward_.output(slot));
}

std::vector<std::string> GradContext::output_grad(llvm::StringRef slot) const {
  std::vector<std::string> out;
  for (const llvm::StringRef name : forward_.output(slot)) out.push_back(names::grad(name));
  return out;
}

std::vector<std::string> GradContext::input_grad(llvm::StringRef slot, bool keep_places) const {
  std::vector<std::string> out;
  bool any = false;
  for (const llvm::StringRef name : forward_.input(slot)) {
    if (name != names::kEmpty && wanted_(name)) {
      out.push_back(names::grad(name));
      any = true;
    } else if (keep_places) {
      out.emplace_back(names::kEmpty);
    }
  }
  if (!any) out.clear();
  return out;
}

StatusOr<std::vector<GradOp>> make_grad_ops(const OpRegistry& registry,
                                            const GradContext& context) {
  const Op& forward = context.forward();
  const llvm::StringRef type = forward.type();
  const OpDef* const def = registry.find(type);
  if (def == nullptr) {
    return InvalidProgram("op type '{}' is unknown", std::string_view(type.data(), type.size()))
        .at(forward.location());
  }
  if (def->grad_fn() != nullptr) return def->grad_fn()(context);
  if (def->grad_spec()) return apply_spec(context, *def);
  return Unimplemented("op type '{}' has no gradient rule",
                       std::string_view(type.data(), type.size()))
      .at(forward.location());
}

}  // namespace millrace::ops
