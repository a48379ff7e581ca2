#include "ops/old_forms.h"

#include <llvm/ADT/STLExtras.h>

namespace millrace::ops {
namespace {

constexpr RenamedAttr kRenamedAttrs[] = {
    {"roll", "dims", "axis"},
    {"flip", "dims", "axis"},
    {"trace", "dim1", "axis1"},
    {"trace", "dim2", "axis2"},
};

constexpr llvm::StringLiteral kFusedFunctions[] = {
    "fuse_activation",          "fuse_relu",           "fuse_brelu",          "fuse_eltwise",
    "fuse_residual_connection", "fused_reshape_X",     "fused_transpose_X",   "fused_reshape_Y",
    "fused_transpose_Y",        "fused_reshape_Out",   "fused_transpose_Out", "fused_squeeze2_axes",
    "fused_unsqueeze2_axes",    "fused_reshape2_shape"};

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

constexpr WithdrawnOutput kWithdrawnOutputs[] = {
    {"generate_proposals", "RpnRoisLod"},
};

}  // namespace

llvm::ArrayRef<WithdrawnOutput> withdrawn_outputs() {
  return kWithdrawnOutputs;
}

bool is_old_kind(llvm::StringRef type, llvm::StringRef attr, AttrKind kind) {
  return type == "allclose" && (attr == "rtol" || attr == "atol") && kind == AttrKind::kFloat;
}

llvm::ArrayRef<RenamedAttr> renamed_attrs() {
  return kRenamedAttrs;
}

std::optional<std::string> fused_function(const Op& op) {
  if (op.type() == "fused_conv2d") return std::nullopt;
  for (const Attr& attr : op.attrs()) {
    const llvm::StringRef name = op.name_of(attr.name);
    if (llvm::is_contained(kFusedFunctions, name) && !is_switched_off(attr.value))
      return name.str();
  }
  return std::nullopt;
}

bool is_op_or_gradient(llvm::StringRef type, llvm::StringRef op) {
  return type == op || (type.consume_front(op) && type == "_grad");
}

}  // namespace millrace::ops
