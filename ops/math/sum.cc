#include <llvm/ADT/STLExtras.h>

#include "framework/names.h"
#include "ops/grad.h"
#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace sum {
namespace {

// Combines `dims` with those of one more summand; false if they differ. A scalar may have rank 0 or
// dims [1]. A summand without elements is ignored.
bool join(std::optional<Dims>& dims, llvm::ArrayRef<int64_t> more) {
  if (dims_product(more) == 0) return true;
  if (!dims) {
    dims = Dims(more.begin(), more.end());
    return true;
  }
  if (dims->size() != more.size()) return dims_product(*dims) == 1 && dims_product(more) == 1;
  for (size_t i = 0; i < more.size(); ++i) {
    if (!dims_agree((*dims)[i], more[i])) return false;
    if ((*dims)[i] < 0) (*dims)[i] = more[i];
  }
  return true;
}

Status infer(InferContext& ctx) {
  const size_t count = ctx.input_count("X");
  if (count == 0) return Ok();
  VarMeta out = ctx.input("X");
  std::optional<Dims> dims;
  bool complete = true;
  for (size_t i = 0; i < count; ++i) {
    const VarMeta& x = ctx.input("X", i);
    // A dense summand makes the sum dense.
    if (x.kind == VarKind::kLodTensor && out.kind == VarKind::kSelectedRows) out = x;
    if (x.kind == VarKind::kLodTensorArray) return infer_unary(ctx);
    if (!dims_known(x)) {
      complete = false;
    } else if (!join(dims, x.dims)) {
      return ctx.error("inputs X must have the same shape, found {} and {} (input {})",
                       dims_text(*dims), dims_text(x.dims), i);
    }
  }
  if (dims) {
    out.dims = *dims;
    out.has_shape = true;
  } else if (!complete && out.kind == VarKind::kLodTensor) {
    out.has_shape = false;
  }
  ctx.set_output("Out", std::move(out));
  return Ok();
}

// The gradient of each summand is a copy of the gradient of the sum.
StatusOr<std::vector<GradOp>> grad(const GradContext& ctx) {
  std::vector<GradOp> ops;
  for (std::string& name : ctx.input_grad("X", /*keep_places=*/true)) {
    if (name == names::kEmpty) continue;
    GradOp op("scale");
    op.input("X", ctx.output_grad("Out")).output("Out", {std::move(name)});
    op.attr("scale", make_attr(1.0F));
    ops.push_back(std::move(op));
  }
  return ops;
}

}  // namespace
}  // namespace sum

void add_math_sum(OpRegistry& registry) {
  using namespace sum;
  registry.add(OpDef("sum")
                   .doc("sum of all inputs; sparse rows stay sparse if every input is")
                   .input("X", "tensors of one shape, or tensor arrays", Arity::kMany,
                          kTensorLike | kTensorArray)
                   .output("Out", "shape and dtype of the first input", Arity::kOne,
                           kTensorLike | kTensorArray)
                   .infer(infer)
                   .grad(grad)
                   .flops(elementwise_flops)
                   .inplace("X", "Out"));
}

}  // namespace millrace::ops
