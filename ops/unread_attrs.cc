#include "ops/unread_attrs.h"

#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"

namespace millrace::ops {
namespace unread_attrs {
namespace {

constexpr llvm::StringLiteral kFusedFunctions[] = {
    "fuse_activation",          "fuse_relu",           "fuse_brelu",          "fuse_eltwise",
    "fuse_residual_connection", "fused_reshape_X",     "fused_transpose_X",   "fused_reshape_Y",
    "fused_transpose_Y",        "fused_reshape_Out",   "fused_transpose_Out", "fused_squeeze2_axes",
    "fused_unsqueeze2_axes",    "fused_reshape2_shape"};

constexpr llvm::StringLiteral kFactors[] = {
    "fused_output_scale", "Scale_x", "Scale_y", "Scale_out", "scale_x", "scale_y", "scale_out"};

bool is_switched_off(const AttrValue& value) {
  switch (value.kind()) {
    case AttrKind::kBool:
      return value.integer() == 0;
    case AttrKind::kString:
      return value.string().empty();
    case AttrKind::kInts:
      return value.ints().empty();
    case AttrKind::kLongs:
      return value.longs().empty();
    default:
      return false;
  }
}

bool is_one(const AttrValue& value) {
  const auto numbers = convert_attr(value, AttrKind::kFloats);
  return numbers && llvm::all_of(numbers->floats(), [](float v) { return v == 1; });
}

// An empty list names no var.
bool is_var(const AttrValue& value) {
  return value.kind() == AttrKind::kVar ||
         (value.kind() == AttrKind::kVars && !value.strings().empty());
}

Status check_attr(const OpDef& def, llvm::StringRef name, const AttrValue& value) {
  const bool applies_functions = def.type() == "fused_conv2d";
  if (!applies_functions && llvm::is_contained(kFusedFunctions, name) && !is_switched_off(value)) {
    return Unimplemented(
               "attribute '{}' asks for the function of another op, which a pass of the original "
               "has fused into this one",
               name.str())
        .with_hint("save the program without the original's oneDNN passes");
  }
  const AttrDef* const declared = def.find_attr(name);
  if (declared == nullptr && llvm::is_contained(kFactors, name) && !is_one(value)) {
    return Unimplemented(
               "attribute '{}' asks for a factor that a pass of the original has put into this op",
               name.str())
        .with_hint("save the program without the original's oneDNN passes");
  }
  if (declared != nullptr && declared->kind != value.kind() && is_var(value)) {
    return Unimplemented("attribute '{}' has the value of a var, expected a constant of type {}",
                         name.str(), attr_kind_name(declared->kind));
  }
  return Ok();
}

}  // namespace
}  // namespace unread_attrs

Status check_attrs_are_read(const OpDef& def, const Op& op) {
  for (const Attr& attr : op.attrs())
    MILLRACE_RETURN_IF_ERROR(unread_attrs::check_attr(def, op.name_of(attr.name), attr.value));
  return Ok();
}

}  // namespace millrace::ops
