#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "transpiler/upgrade/new_var.h"
#include "transpiler/upgrade/upgrade.h"

namespace millrace::transpiler {
namespace {

// True if some op of the program is a gradient of the op type.
bool has_gradient_ops(const Program& program, llvm::StringRef type) {
  const std::string gradient = (type + "_grad").str();
  return llvm::any_of(program.blocks(), [&](const Block& block) {
    return llvm::any_of(block.ops(), [&](const Op& op) { return op.type() == gradient; });
  });
}

void copy_role(const Op& from, Op& to) {
  for (const char* const name : {"op_role", "op_device", "op_namescope"}) {
    if (const AttrValue* const value = from.find_attr(name)) to.set_attr(name, *value);
  }
}

// The older leaky_relu is max(x, alpha * x), which differs if alpha is below 0 or above 1.
StatusOr<bool> replace_leaky_relu(Op& op) {
  const float alpha = get_attr_or<float>(op, "alpha", 0.02F);
  if (alpha >= 0 && alpha <= 1) return false;
  if (has_gradient_ops(op.program(), op.type()))
    return Unimplemented(
               "leaky_relu with alpha {} was written by a release that computed max(x, alpha * x); "
               "its gradient cannot be upgraded",
               alpha)
        .at(op.location());
  Block& block = op.block();
  const std::string x = op.first_input("X").str();
  const Var* const like = block.find_var_recursive(op.first_output("Out"));
  VarSpec spec = like != nullptr ? like->spec() : VarSpec::tensor(DType::kFloat32, {});
  spec.persistable.reset();
  const std::string scaled = new_var(op, op.first_output("Out"), "scaled", std::move(spec));
  Op& scale = block.insert_before(&op, "scale");
  scale.set_input("X", x).set_output("Out", scaled);
  scale.set_float("scale", alpha).set_float("bias", 0).set_bool("bias_after_scale", true);
  copy_role(op, scale);
  Op& max = block.insert_before(&op, "elementwise_max");
  max.set_input("X", x).set_input("Y", scaled).set_output("Out", op.first_output("Out"));
  max.set_int("axis", -1);
  copy_role(op, max);
  block.erase(op);
  return true;
}

// The older hard_shrink adds x for each of its two conditions. With a threshold below 0 both can
// hold, and x is counted twice.
Status check_hard_shrink(const Op& op) {
  const float threshold = get_attr_or<float>(op, "threshold", 0.5F);
  if (threshold >= 0) return Ok();
  return Unimplemented(
             "hard_shrink with threshold {} was written by a release that doubled x between "
             "{} and {}; no op of release 2.6 computes that",
             threshold, threshold, -threshold)
      .at(op.location());
}

}  // namespace

StatusOr<bool> upgrade_formulas(Program& program, PassContext& /*context*/) {
  bool changed = false;
  const bool old_leaky_relu = written_version(program, "leaky_relu") < 1;
  const bool old_hard_shrink = written_version(program, "hard_shrink") < 1;
  for (Block& block : program.blocks()) {
    for (Op* const op : block.op_vector()) {
      if (old_hard_shrink && op->type() == "hard_shrink")
        MILLRACE_RETURN_IF_ERROR(check_hard_shrink(*op));
      if (!old_leaky_relu || op->type() != "leaky_relu") continue;
      MILLRACE_ASSIGN_OR_RETURN(const bool replaced, replace_leaky_relu(*op));
      changed |= replaced;
    }
  }
  return changed;
}

}  // namespace millrace::transpiler
