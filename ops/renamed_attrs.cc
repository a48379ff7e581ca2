#include "ops/renamed_attrs.h"

namespace millrace::ops {
namespace {

constexpr RenamedAttr kRenamedAttrs[] = {
    {"roll", "dims", "axis"},
    {"flip", "dims", "axis"},
    {"trace", "dim1", "axis1"},
    {"trace", "dim2", "axis2"},
};

}  // namespace

llvm::ArrayRef<RenamedAttr> renamed_attrs() {
  return kRenamedAttrs;
}

bool is_op_or_gradient(llvm::StringRef type, llvm::StringRef op) {
  return type == op || (type.consume_front(op) && type == "_grad");
}

}  // namespace millrace::ops
