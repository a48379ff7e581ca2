#include <algorithm>
#include <array>

#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "ops/verify_context.h"

namespace millrace::ops::verify {
namespace {

// Bits of op_role: backward, optimize, rpc, dist, learning rate, loss, not specified.
constexpr int64_t kRoleBits = 1 | 2 | 4 | 8 | 16 | 256 | 4096;
// Combinations that front ends write.
constexpr std::array<int64_t, 10> kUsualRoles = {0, 1, 2, 4, 8, 16, 18, 256, 257, 4096};

void check_role(Context& context, const OpView& view, int64_t role) {
  if (std::find(kUsualRoles.begin(), kUsualRoles.end(), role) != kUsualRoles.end()) return;
  Location where = Context::place(view);
  where.attr = "op_role";
  const bool known = role >= 0 && (role & ~kRoleBits) == 0;
  Status status = InvalidProgram(
      "op_role {} {} (bits are 1 backward, 2 optimize, 4 rpc, 8 dist, 16 lr, 256 loss, 4096 none)",
      role, known ? "is an unusual combination" : "has unknown bits");
  if (known) {
    context.warning(view, "op-role", std::move(status), std::move(where));
  } else {
    context.error(view, "op-role", std::move(status), std::move(where));
  }
}

// Mixed precision lists the gradients that it checks, without their parameters.
bool lists_own_gradients(const Op& op, llvm::ArrayRef<std::string> names) {
  if (op.type() != "check_finite_and_unscale") return false;
  return llvm::equal(op.input("X"), names);
}

// A pserver declares slices, but op_role_var in its sub-blocks keeps the names of whole parameters.
// A transpiled trainer program may lack a gradient. So only parameters in block 0 must be declared.
void check_role_vars(Context& context, const OpView& view, llvm::ArrayRef<std::string> names) {
  if (lists_own_gradients(view.op, names)) return;
  Location where = Context::place(view);
  where.attr = "op_role_var";
  if (names.size() % 2 != 0) {
    context.error(
        view, "op-role-var",
        InvalidProgram("op_role_var has {} names (expected pairs of param and grad)", names.size()),
        std::move(where));
    return;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const auto id = context.program.names().find(names[i]);
    if (id && context.visible[static_cast<uint32_t>(*id)] != nullptr) continue;
    const bool is_param = i % 2 == 0;
    where.var = names[i].substr(0, 256);
    Status status = InvalidProgram("op_role_var names {} '{}', which is not declared",
                                   is_param ? "param" : "grad", where.var);
    if (is_param && view.op.block().index() == 0) {
      context.error(view, "op-role-var", std::move(status), where);
    } else if (context.options.lint) {
      context.warning(view, "op-role-var", std::move(status), where);
    }
  }
}

}  // namespace

void check_roles(Context& context, const OpView& view) {
  for (const Attr& attr : view.op.attrs()) {
    if (attr.name == context.role_name && attr.value.kind() == AttrKind::kInt) {
      check_role(context, view, attr.value.integer());
    } else if (attr.name == context.role_var_name && attr.value.kind() == AttrKind::kStrings) {
      if (!attr.value.strings().empty()) check_role_vars(context, view, attr.value.strings());
    }
  }
}

}  // namespace millrace::ops::verify
