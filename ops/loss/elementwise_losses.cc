#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace elementwise_losses {
namespace {

// The first input slot is the prediction, the second what it is compared with; every output has the
// shape of the prediction. Old programs pair [n, 1] with [n].
Status infer(InferContext& ctx) {
  const auto inputs = ctx.def().inputs();
  MILLRACE_RETURN_IF_ERROR(check_same_count(ctx, inputs[0].name, inputs[1].name));
  for (const SlotDef& output : ctx.def().outputs()) ctx.copy(inputs[0].name, output.name);
  return Ok();
}

Status infer_modified_huber(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_same_count(ctx, "X", "Y"));
  for (const char* const slot : {"IntermediateVal", "Out"})
    ctx.set_output(slot, without_offsets(ctx.input("X")));
  return Ok();
}

Status infer_huber_grad(InferContext& ctx) {
  const auto like = [&](llvm::StringRef slot) {
    return ctx.has_input(slot) ? ctx.input(slot) : ctx.input("Residual");
  };
  ctx.set_output("X@GRAD", without_offsets(like("X")));
  ctx.set_output("Y@GRAD", with_offsets_of(like("Y"), ctx.input("Out@GRAD")));
  return Ok();
}

OpDef loss(llvm::StringRef type, llvm::StringRef doc, llvm::StringRef prediction,
           llvm::StringRef truth) {
  OpDef def(type);
  def.doc(doc)
      .input(prediction, "predictions")
      .input(truth, "target values, shape of the predictions")
      .infer(infer)
      .flops(elementwise_flops);
  return def;
}

void add_classification(OpRegistry& registry) {
  registry.add(loss("bce_loss", "cross entropy of probabilities and labels in [0, 1]", "X", "Label")
                   .output("Out", "shape of X")
                   .grad({.type = "bce_loss_grad",
                          .inputs = {"Label", "Out@GRAD", "X"},
                          .outputs = {"X@GRAD"}})
                   .inplace("X", "Out"));
  registry.add(loss("log_loss", "negative log likelihood of probabilities", "Predicted", "Labels")
                   .output("Loss", "shape of Predicted")
                   .required_attr<float>("epsilon", "added inside the logarithms")
                   .range(0)
                   .grad({.type = "log_loss_grad",
                          .inputs = {"Labels", "Loss@GRAD", "Predicted"},
                          .outputs = {"Predicted@GRAD"}}));
  registry.add(loss("hinge_loss", "max(0, 1 - (2 * Labels - 1) * Logits)", "Logits", "Labels")
                   .output("Loss", "shape of Logits")
                   .grad({.type = "hinge_loss_grad",
                          .inputs = {"Labels", "Logits", "Loss@GRAD"},
                          .outputs = {"Logits@GRAD"},
                          .infer = infer_grad_without_offsets}));
  registry.add(loss("sigmoid_cross_entropy_with_logits",
                    "cross entropy of sigmoid(X) and labels in [0, 1]", "X", "Label")
                   .input("pos_weight", "factors of the positive term", Arity::kOptional)
                   .output("Out", "shape of X")
                   .attr("normalize", false, "divide by the number of labels that count")
                   .attr("ignore_index", -100, "label whose loss is 0")
                   .grad({.type = "sigmoid_cross_entropy_with_logits_grad",
                          .inputs = {"Label", "Out@GRAD", "X", "pos_weight"},
                          .outputs = {"X@GRAD"}})
                   .inplace("X", "Out"));
  registry.add(loss("teacher_student_sigmoid_loss",
                    "click loss plus distillation loss; the range of the label selects the terms",
                    "X", "Label")
                   .output("Y", "shape of X")
                   .attr("soft_max_up_bound", 15.0F, "upper bound of X in the gradient")
                   .attr("soft_max_lower_bound", -15.0F, "lower bound of X in the gradient")
                   .grad({.type = "teacher_student_sigmoid_loss_grad",
                          .inputs = {"Label", "X", "Y@GRAD"},
                          .outputs = {"X@GRAD"}}));
}

// Classes count from 1 in Label, and from 0 in the columns of X.
Status infer_focal(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_elements(ctx, "FgNum", 1));
  const VarMeta& x = ctx.input("X");
  if (x.has_shape && x.dims[0] >= 0)
    MILLRACE_RETURN_IF_ERROR(check_elements(ctx, "Label", x.dims[0]));
  ctx.copy("X", "Out");
  return Ok();
}

void add_focal(OpRegistry& registry) {
  registry.add(OpDef("sigmoid_focal_loss")
                   .doc("focal loss: cross entropy of sigmoid(X) with less weight for "
                        "well-classified elements")
                   .input("X", "[n, classes]")
                   .input("Label", "int32 [n, 1]; class from 1 on; 0: none; -1: ignored")
                   .input("FgNum", "int32 [1]; the loss is divided by it, or by 1 if it is less")
                   .output("Out", "shape of X")
                   .attr("gamma", 2.0F, "exponent of the prediction error in the weight")
                   .attr("alpha", 0.25F, "weight of the correct class; 1 - alpha for the others")
                   .infer(infer_focal)
                   .flops(elementwise_flops)
                   .grad({.type = "sigmoid_focal_loss_grad",
                          .inputs = {"FgNum", "Label", "Out@GRAD", "X"},
                          .outputs = {"X@GRAD"}}));
}

void add_huber(OpRegistry& registry) {
  registry.add(loss("huber_loss", "squared error near 0, absolute error beyond delta", "X", "Y")
                   .output("Out", "shape of X")
                   .intermediate("Residual", "Y - X")
                   .required_attr<float>("delta", "where the loss becomes linear")
                   .range(0)
                   .grad({.type = "huber_loss_grad",
                          .inputs = {"Out@GRAD", "Residual"},
                          .outputs = {"X@GRAD", "Y@GRAD"},
                          .infer = infer_huber_grad}));
  registry.add(loss("modified_huber_loss", "squared hinge, linear for values below -1", "X", "Y")
                   .intermediate("IntermediateVal", "X * (2 * Y - 1)")
                   .output("Out", "shape of X")
                   .infer(infer_modified_huber)
                   .grad({.type = "modified_huber_loss_grad",
                          .inputs = {"IntermediateVal", "Out@GRAD", "Y"},
                          .outputs = {"X@GRAD"},
                          .shape_like = {{"X@GRAD", "IntermediateVal"}}}));
}

}  // namespace
}  // namespace elementwise_losses

/// Losses that compare two tensors element by element and keep their shape.
void add_loss_elementwise_losses(OpRegistry& registry) {
  using namespace elementwise_losses;
  add_classification(registry);
  add_focal(registry);
  add_huber(registry);
}

}  // namespace millrace::ops
