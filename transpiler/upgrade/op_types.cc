#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/STLFunctionalExtras.h>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "transpiler/upgrade/forward_op.h"
#include "transpiler/upgrade/new_var.h"
#include "transpiler/upgrade/upgrade.h"

namespace millrace::transpiler {
namespace {

// The successor has a second output (0 followed by the dims of X), from which its gradient takes
// the shape. The older op has no such output; its gradient reads X.
struct ShapeKeeper {
  llvm::StringRef type;
  llvm::StringRef successor;
};

constexpr ShapeKeeper kShapeKeepers[] = {
    {"reshape", "reshape2"},     {"transpose", "transpose2"}, {"squeeze", "squeeze2"},
    {"unsqueeze", "unsqueeze2"}, {"flatten", "flatten2"},
};

const ShapeKeeper* keeper_of(llvm::StringRef type) {
  const auto* const found =
      llvm::find_if(kShapeKeepers, [&](const ShapeKeeper& entry) { return entry.type == type; });
  return found == std::end(kShapeKeepers) ? nullptr : found;
}

// Declares the XShape of an op that reads X from `x` and derives its name from `out`.
std::string new_xshape(Op& op, llvm::StringRef x, llvm::StringRef out) {
  const Var* const var = op.block().find_var_recursive(x);
  Dims dims{0};
  if (var != nullptr) dims.append(var->dims().begin(), var->dims().end());
  return new_var(op, out, "xshape",
                 VarSpec::tensor(var == nullptr ? DType::kFloat32 : var->dtype(), dims));
}

void keep_shape(Op& op, const ShapeKeeper& entry) {
  const std::string xshape = new_xshape(op, op.first_input("X"), op.first_output("Out"));
  op.set_type(entry.successor);
  op.set_output("XShape", xshape);
}

// The gradient op takes the shape from its forward op's XShape instead of X. Forward ops are
// upgraded first, both within a block and block by block, so op is already a successor.
Status keep_shape_in_gradient(Op& op, const ShapeKeeper& entry) {
  MILLRACE_ASSIGN_OR_RETURN(Op* const forward, forward_op(op, entry.successor));
  if (forward == nullptr || forward->first_output("XShape").empty())
    return Unimplemented("{}: the program has no forward op for it, whose shape it needs",
                         op.type().str())
        .at(op.location());
  op.remove_input("X");
  op.remove_input("Out");
  op.set_input("XShape", forward->first_output("XShape"));
  op.set_type((entry.successor + "_grad").str());
  return Ok();
}

// Declares a tensor for an op inserted before `op`, like `like` except for its dims.
std::string inner_result(Op& op, llvm::StringRef suffix, llvm::ArrayRef<int64_t> dims,
                         llvm::StringRef like) {
  const Var* const var = op.block().find_var_recursive(like);
  VarSpec spec = var != nullptr ? var->spec() : VarSpec::tensor(DType::kInt64, dims);
  spec.persistable.reset();
  spec.is_parameter.reset();
  spec.dims.assign(dims.begin(), dims.end());
  return new_var(op, op.first_output("Out"), suffix, std::move(spec));
}

// one_hot replaces the last dim of X, which is 1; one_hot_v2 adds a dim.
bool upgrade_one_hot(Op& op) {
  Block& block = op.block();
  const std::string ids = op.first_input("X").str();
  const Var* const var = block.find_var_recursive(ids);
  Dims dims;
  if (var != nullptr && !var->dims().empty())
    dims.assign(var->dims().begin(), var->dims().end() - 1);
  const std::string flat = inner_result(op, "ids", dims, ids);
  const std::string xshape = new_xshape(op, ids, flat);
  Op& squeeze = block.insert_before(&op, "squeeze2");
  squeeze.set_input("X", ids).set_output("Out", flat).set_output("XShape", xshape);
  squeeze.set_attr("axes", AttrValue::of_ints({-1}));
  if (const AttrValue* const role = op.find_attr("op_role")) squeeze.set_attr("op_role", *role);
  op.set_input("X", flat);
  op.set_type("one_hot_v2");
  return true;
}

bool upgrade_diag(Op& op) {
  const std::string x = op.first_input("Diagonal").str();
  op.remove_input("Diagonal");
  op.set_input("X", x).set_int("offset", 0).set_float("padding_value", 0);
  op.set_type("diag_v2");
  return true;
}

// expand_as tiles; expand_as_v2 repeats dims of 1 only; the results are equal if all other dims
// match.
StatusOr<bool> upgrade_expand_as(Op& op) {
  const Var* const x = op.block().find_var_recursive(op.first_input("X"));
  const Var* const target = op.block().find_var_recursive(op.first_input("target_tensor"));
  if (x == nullptr || target == nullptr || x->dims().size() != target->dims().size()) return false;
  for (size_t i = 0; i < x->dims().size(); ++i) {
    const int64_t size = x->dims()[i];
    if (size != 1 && (size < 0 || size != target->dims()[i])) return false;
  }
  const std::string like = op.first_input("target_tensor").str();
  op.remove_input("target_tensor");
  op.set_input("Y", like);
  op.set_attr("target_shape", AttrValue::of_ints({target->dims().begin(), target->dims().end()}));
  op.set_type("expand_as_v2");
  return true;
}

StatusOr<bool> upgrade_one_type(Op& op) {
  if (const ShapeKeeper* const entry = keeper_of(op.type())) {
    keep_shape(op, *entry);
    return true;
  }
  llvm::StringRef forward = op.type();
  if (forward.consume_back("_grad")) {
    const ShapeKeeper* const entry = keeper_of(forward);
    if (entry == nullptr) return false;
    MILLRACE_RETURN_IF_ERROR(keep_shape_in_gradient(op, *entry));
    return true;
  }
  if (op.type() == "one_hot" && op.input("depth_tensor").empty()) return upgrade_one_hot(op);
  if (op.type() == "diag") return upgrade_diag(op);
  if (op.type() == "expand_as") return upgrade_expand_as(op);
  return false;
}

}  // namespace

StatusOr<bool> upgrade_op_types(Program& program, PassContext& /*context*/) {
  bool changed = false;
  for (Block& block : program.blocks()) {
    for (Op* const op : block.op_vector()) {
      MILLRACE_ASSIGN_OR_RETURN(const bool one, upgrade_one_type(*op));
      changed |= one;
    }
  }
  return changed;
}

}  // namespace millrace::transpiler
