#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace cross_entropy_ops {
namespace {

// One value for each row of classes: the shape of X with a last dim of 1; without the dim if the
// labels lack it too.
StatusOr<VarMeta> loss_meta(const InferContext& ctx, bool soft_label) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& label = ctx.input("Label");
  if (!dims_known(x)) return shapeless_meta(x.dtype);
  if (x.dims.empty()) return ctx.error("X must have a rank of at least 1, found []");
  VarMeta out = x;
  out.dims.back() = 1;
  if (!dims_known(label)) return out;
  Dims expected = soft_label ? x.dims : out.dims;
  if (!soft_label && label.rank() + 1 == x.rank()) {
    expected.pop_back();
    out.dims.pop_back();
  }
  bool fits = label.rank() == expected.size();
  for (size_t i = 0; fits && i < expected.size(); ++i)
    fits = dims_agree(label.dims[i], expected[i]);
  if (fits) return out;
  return ctx.error("Label must have shape {} for X {} and {} labels, found {}", dims_text(expected),
                   dims_text(x.dims), soft_label ? "soft" : "hard", dims_text(label.dims));
}

Status infer_loss(InferContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(VarMeta out, loss_meta(ctx, ctx.attr<bool>("soft_label")));
  ctx.set_output("Y", std::move(out));
  return Ok();
}

Status infer_hard(InferContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(VarMeta out, loss_meta(ctx, /*soft_label=*/false));
  ctx.set_output("Y", std::move(out));
  return Ok();
}

// XShape holds no data; its dims are those of X and one 0 more.
Status infer_cross_entropy2(InferContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(VarMeta out, loss_meta(ctx, /*soft_label=*/false));
  VarMeta shape = ctx.input("X");
  if (shape.has_shape) shape.dims.push_back(0);
  // a last dim of 1, whether the labels have it or not
  VarMeta match = ctx.input("X");
  if (match.has_shape) match.dims.back() = 1;
  match.lod_level = 0;
  match.lod = {};
  ctx.set_output("XShape", std::move(shape));
  ctx.set_output("MatchX", std::move(match));
  ctx.set_output("Y", std::move(out));
  return Ok();
}

Status infer_cross_entropy2_grad(InferContext& ctx) {
  VarMeta shape = ctx.input("XShape");
  if (!ctx.has_input("XShape")) return Ok();
  if (shape.has_shape) {
    if (shape.dims.empty()) return ctx.error("XShape must have a rank of at least 1, found []");
    shape.dims.pop_back();
  }
  ctx.set_output("X@GRAD", std::move(shape));
  return Ok();
}

OpDef base(llvm::StringRef type, llvm::StringRef doc, InferFn infer) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "probabilities, classes in the last dim")
      .input("Label", "class numbers with a last dim of 1, or probabilities")
      .output("Y", "shape of X with a last dim of 1")
      .infer(infer)
      .flops(elementwise_flops);
  return def;
}

}  // namespace
}  // namespace cross_entropy_ops

/// cross_entropy, bpr_loss and the second form of cross_entropy with its gradient op.
void add_loss_cross_entropy(OpRegistry& registry) {
  using namespace cross_entropy_ops;
  registry.add(
      base("cross_entropy", "negative logarithm of the probability of the label", infer_loss)
          .attr("soft_label", false, "Label holds probabilities")
          .attr("ignore_index", -100, "class whose loss is 0")
          .grad({.type = "cross_entropy_grad",
                 .inputs = {"Label", "X", "Y@GRAD"},
                 .outputs = {"X@GRAD"}}));
  registry.add(
      base("bpr_loss", "ranking loss of the label's score against all other scores", infer_hard)
          .grad({.type = "bpr_loss_grad",
                 .inputs = {"Label", "X", "Y@GRAD"},
                 .outputs = {"X@GRAD"}}));
  registry.add(base("cross_entropy2", "cross_entropy of hard labels that keeps less for backward",
                    infer_cross_entropy2)
                   .intermediate("XShape", "shape of X")
                   .intermediate("MatchX", "probability of the label")
                   .attr("ignore_index", -100, "class whose loss is 0")
                   .grad({.type = "cross_entropy_grad2",
                          .inputs = {"Label", "MatchX", "XShape", "Y@GRAD"},
                          .outputs = {"X@GRAD"}}));
  registry.add(OpDef("cross_entropy_grad2")
                   .doc("gradient of cross_entropy2")
                   .input("Label", "class numbers")
                   .input("MatchX", "probability of the label")
                   .input("XShape", "shape of X and a 0")
                   .input("Y@GRAD", "gradient of that output")
                   .output("X@GRAD", "gradient of that input")
                   .attr("ignore_index", -100, "class whose loss is 0")
                   .infer(infer_cross_entropy2_grad)
                   .flops(elementwise_flops));
}

}  // namespace millrace::ops
