#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace center_loss {
namespace {

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 64));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Centers", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_elements(ctx, "CenterUpdateRate", 1));
  const VarMeta& x = ctx.input("X");
  const VarMeta& centers = ctx.input("Centers");
  const DType dtype = x.dtype;
  int64_t rows = -1;
  int64_t width = -1;
  if (dims_known(x)) {
    rows = x.dims[0];
    width = dims_product(llvm::ArrayRef<int64_t>(x.dims).drop_front());
  }
  if (dims_known(centers) && !dims_agree(width, centers.dims[1])) {
    return ctx.error("Centers must have {} columns for X {}, found {}", width, dims_text(x.dims),
                     dims_text(centers.dims));
  }
  ctx.set_output("SampleCenterDiff", dtype, {rows, width});
  ctx.set_output("Loss", dtype, {rows, 1});
  ctx.copy("Centers", "CentersOut");
  return Ok();
}

double flops(const InferContext& ctx) {
  return 4 * element_count(ctx.input("X"));
}

}  // namespace
}  // namespace center_loss

void add_loss_center_loss(OpRegistry& registry) {
  using namespace center_loss;
  registry.add(
      OpDef("center_loss")
          .doc(
              "half the squared distance of each row to the centre of its class; moves the centres")
          .input("X", "[n, ...]")
          .input("Label", "class numbers [n, 1]")
          .input("Centers", "[classes, width of a row]")
          .input("CenterUpdateRate", "one element")
          .intermediate("SampleCenterDiff", "X minus the centres")
          .output("Loss", "[n, 1]")
          .output("CentersOut", "the moved centres, the same var as Centers")
          .attr("cluster_num", 0, "number of classes")
          .range(0)
          .attr("need_update", false, "whether to move the centres")
          .infer(infer)
          .grad({.type = "center_loss_grad",
                 .inputs = {"Loss@GRAD", "SampleCenterDiff", "X"},
                 .outputs = {"X@GRAD"}})
          .flops(flops)
          .inplace("Centers", "CentersOut"));
}

}  // namespace millrace::ops
