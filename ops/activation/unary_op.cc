#include "ops/activation/unary_op.h"

#include "ops/infer_helpers.h"

namespace millrace::ops {
namespace {

std::vector<llvm::StringRef> grad_inputs(GradReads reads) {
  switch (reads) {
    case GradReads::kNothing:
      return {"Out@GRAD"};
    case GradReads::kX:
      return {"Out@GRAD", "X"};
    case GradReads::kOut:
      return {"Out", "Out@GRAD"};
    case GradReads::kBoth:
      return {"Out", "Out@GRAD", "X"};
  }
  return {};
}

}  // namespace

OpDef unary_op(llvm::StringRef type, llvm::StringRef grad_type, GradReads reads,
               llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "any shape")
      .output("Out", "shape, dtype and LoD of X")
      .infer(infer_unary)
      .flops(elementwise_flops)
      .inplace("X", "Out");
  if (!grad_type.empty()) {
    def.grad({.type = grad_type,
              .inputs = grad_inputs(reads),
              .outputs = {"X@GRAD"},
              .shape_like = {{"X@GRAD", "Out"}, {"X@GRAD", "Out@GRAD"}}});
  }
  return def;
}

}  // namespace millrace::ops
