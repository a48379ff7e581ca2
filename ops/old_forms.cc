#include "ops/old_forms.h"

namespace millrace::ops {
namespace {

constexpr RenamedAttr kRenamedAttrs[] = {
    {"roll", "dims", "axis"},
    {"flip", "dims", "axis"},
    {"trace", "dim1", "axis1"},
    {"trace", "dim2", "axis2"},
};

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

bool is_op_or_gradient(llvm::StringRef type, llvm::StringRef op) {
  return type == op || (type.consume_front(op) && type == "_grad");
}

}  // namespace millrace::ops
