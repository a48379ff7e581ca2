#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace nll_loss {
namespace {

// The dims of X [n, classes, ...] without the class dim.
StatusOr<Dims> label_dims(const InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  Dims out{x.dims[0]};
  out.append(x.dims.begin() + 2, x.dims.end());
  const VarMeta& label = ctx.input("Label");
  if (!dims_known(label)) return out;
  bool fits = label.rank() == out.size();
  for (size_t i = 0; fits && i < out.size(); ++i) fits = dims_agree(out[i], label.dims[i]);
  if (fits) return out;
  return ctx.error("Label must have shape {} for X {}, found {}", dims_text(out), dims_text(x.dims),
                   dims_text(label.dims));
}

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 64));
  const VarMeta& x = ctx.input("X");
  const DType dtype = x.dtype;
  if (!dims_known(x)) {
    ctx.set_output("Out", shapeless_meta(dtype));
    ctx.set_output("Total_weight", dtype, {});
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const Dims labels, label_dims(ctx));
  if (ctx.has_input("Weight") && x.dims[1] >= 0)
    MILLRACE_RETURN_IF_ERROR(check_elements(ctx, "Weight", x.dims[1]));
  const bool each = ctx.attr<std::string>("reduction") == "none";
  ctx.set_output("Out", dtype, each ? llvm::ArrayRef<int64_t>(labels) : llvm::ArrayRef<int64_t>());
  ctx.set_output("Total_weight", dtype, {});
  return Ok();
}

}  // namespace
}  // namespace nll_loss

void add_loss_nll_loss(OpRegistry& registry) {
  registry.add(OpDef("nll_loss")
                   .doc("negative of the log probability of the label")
                   .input("X", "log probabilities [n, classes, ...]")
                   .input("Label", "class numbers [n, ...]")
                   .input("Weight", "factors of the classes", Arity::kOptional)
                   .output("Out", "shape of Label, or rank 0")
                   .output("Total_weight", "sum of the factors that count, rank 0")
                   .attr("ignore_index", int64_t{-100}, "class whose loss is 0")
                   .attr("reduction", "mean", "how the values are reduced")
                   .one_of({"none", "mean", "sum"})
                   .infer(nll_loss::infer)
                   .grad({.type = "nll_loss_grad",
                          .inputs = {"Label", "Out@GRAD", "Total_weight", "Weight", "X"},
                          .outputs = {"X@GRAD"},
                          .infer = infer_grad_without_offsets})
                   .flops(elementwise_flops));
}

}  // namespace millrace::ops
