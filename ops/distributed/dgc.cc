#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Gradient compression: only the largest elements are sent, the rest is kept for later steps.
namespace millrace::ops {
namespace dgc {
namespace {

Status infer(InferContext& ctx) {
  ctx.copy("U", "U_out");
  ctx.copy("V", "V_out");
  ctx.copy("Grad", "Grad_out");
  ctx.set_output("k", DType::kFloat32, {1});
  return Ok();
}

}  // namespace
}  // namespace dgc

void add_distributed_dgc(OpRegistry& registry) {
  registry.add(
      OpDef("dgc")
          .doc("momentum-corrected top-k gradient compression: exact, ties broken by index")
          .input("U", "momentum")
          .input("V", "elements not sent yet")
          .input("Grad", "gradient of this trainer")
          .input("Param", "for weight decay", Arity::kOptional)
          .input("current_step", "one element")
          .input("nranks", "number of trainers, one element", Arity::kOptional)
          .output("U_out", "momentum after the step")
          .output("V_out", "elements not sent after the step")
          .output("EncodeGrad", "indices and values to send")
          .output("Grad_out", "gradient with the sent elements")
          .output("k", "number of sent elements, one element")
          .output("GatherBuff", "receive buffer", Arity::kOptional)
          .attr("m", 0.9F, "momentum")
          .range(0)
          .attr("use_nesterov", true, "use Nesterov momentum")
          .attr("sparsity", std::vector<float>{},
                "share of elements not sent, one entry per period of warm-up")
          .range(0, 1)
          .attr("rampup_begin_step", 0.0F, "first step that compresses")
          .attr("rampup_step", 0.0F, "steps of warm-up")
          .attr("regular_coeff", 0.0F, "weight decay factor")
          .attr("regular_type", 0, "0 none, 1 L1, 2 L2")
          .range(0, 2)
          .infer(dgc::infer));
  registry.add(OpDef("dgc_clip_by_norm")
                   .doc("clip by norm, from the first step that compresses")
                   .input("X", "gradient")
                   .input("current_step", "one element")
                   .output("Out", "clipped gradient")
                   .required_attr<float>("max_norm", "norm to clip to")
                   .range(0)
                   .attr("rampup_begin_step", -1.0F, "first step that clips; below 0: none")
                   .infer(infer_unary)
                   .inplace("X", "Out"));
}

}  // namespace millrace::ops
