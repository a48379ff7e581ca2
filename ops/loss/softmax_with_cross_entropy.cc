#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace softmax_with_cross_entropy_ops {
namespace {

Status check_label(const InferContext& ctx, llvm::ArrayRef<int64_t> loss, size_t axis) {
  const VarMeta& logits = ctx.input("Logits");
  const VarMeta& label = ctx.input("Label");
  if (!dims_known(label)) return Ok();
  const bool soft = ctx.attr<bool>("soft_label");
  Dims expected(loss.begin(), loss.end());
  if (soft) expected[axis] = logits.dims[axis];
  Dims compared = expected;
  // Front ends of 2.x omit the class dim of hard labels.
  if (!soft && label.rank() + 1 == expected.size()) compared.erase(compared.begin() + axis);
  bool fits = label.rank() == compared.size();
  for (size_t i = 0; fits && i < compared.size(); ++i)
    fits = dims_agree(label.dims[i], compared[i]);
  if (fits) return Ok();
  return ctx.error("Label must have shape {} for Logits {}, axis {} and {} labels, found {}",
                   dims_text(expected), dims_text(logits.dims), axis, soft ? "soft" : "hard",
                   dims_text(label.dims));
}

Status infer(InferContext& ctx) {
  const VarMeta& logits = ctx.input("Logits");
  if (!dims_known(logits)) {
    ctx.copy("Logits", "Softmax");
    ctx.copy("Logits", "Loss");
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const int64_t axis,
                            checked_axis(ctx, "axis", ctx.attr<int32_t>("axis"), logits.rank()));
  if (logits.dims.empty()) return ctx.error("Logits must have a rank of at least 1, found []");
  VarMeta loss = logits;
  loss.dims[static_cast<size_t>(axis)] = 1;
  MILLRACE_RETURN_IF_ERROR(check_label(ctx, loss.dims, static_cast<size_t>(axis)));
  ctx.copy("Logits", "Softmax");
  ctx.set_output("Loss", std::move(loss));
  return Ok();
}

double flops(const InferContext& ctx) {
  return 6 * elementwise_flops(ctx);
}

}  // namespace
}  // namespace softmax_with_cross_entropy_ops

void add_loss_softmax_with_cross_entropy(OpRegistry& registry) {
  using namespace softmax_with_cross_entropy_ops;
  registry.add(OpDef("softmax_with_cross_entropy")
                   .doc("cross entropy of softmax(Logits) and labels, without overflow")
                   .input("Logits", "classes along axis")
                   .input("Label", "class numbers with size 1 along axis, or probabilities")
                   .output("Softmax", "shape of Logits")
                   .output("Loss", "shape of Logits with size 1 along axis")
                   .attr("soft_label", false, "Label holds probabilities")
                   .attr("use_softmax", true, "false: Logits are probabilities already")
                   .attr("numeric_stable_mode", true, "subtract the maximum first")
                   .attr("ignore_index", -100, "class whose loss is 0")
                   .attr("axis", -1, "dim of the classes")
                   .infer(infer)
                   .grad({.type = "softmax_with_cross_entropy_grad",
                          .inputs = {"Label", "Loss@GRAD", "Softmax"},
                          .outputs = {"Logits@GRAD"},
                          .shape_like = {{"Logits@GRAD", "Softmax"}},
                          .drops_lod = true})
                   .flops(flops)
                   .inplace("Logits", "Softmax"));
}

}  // namespace millrace::ops
