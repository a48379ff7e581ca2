#include "tests/ops/verify_fixture.h"

namespace millrace::ops {
namespace {

Status infer_mul(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& y = ctx.input("Y");
  if (!x.has_shape || !y.has_shape || x.rank() != 2 || y.rank() != 2) return Ok();
  if (!dims_agree(x.dims[1], y.dims[0])) {
    return ctx.error("X has {} columns, Y has {} rows (expected the same)", x.dims[1], y.dims[0]);
  }
  ctx.set_output("Out", x.dtype, {x.dims[0], y.dims[1]});
  return Ok();
}

Status infer_fill(InferContext& ctx) {
  ctx.set_output("Out", DType::kFloat32, ctx.attr<std::vector<int64_t>>("shape"));
  return Ok();
}

OpDef mul() {
  return OpDef("mul")
      .input("X", "matrix")
      .input("Y", "matrix")
      .output("Out", "product", Arity::kOne, kTensor)
      .attr("x_num_col_dims", 1)
      .range(1)
      .infer(infer_mul)
      .grad(GradSpec{"mul_grad", {"X", "Y", "Out@GRAD"}, {"X@GRAD", "Y@GRAD"}, {}});
}

OpDef fill() {
  return OpDef("fill")
      .output("Out", "tensor")
      .required_attr<std::vector<int64_t>>("shape")
      .attr("value", 0.0F)
      .range(-1, 1)
      .attr("mode", "plain")
      .one_of({"plain", "fancy"})
      .infer(infer_fill);
}

OpDef cond() {
  return OpDef("cond")
      .input("Input", "vars", Arity::kAny, kAnyKind)
      .output("Out", "vars", Arity::kAny, kAnyKind)
      .block_attr("sub_block", "body");
}

OpDef cond_grad() {
  return OpDef("cond_grad")
      .input("Input", "vars", Arity::kAny, kAnyKind)
      .output("Input@GRAD", "gradients", Arity::kAny, kAnyKind)
      .block_attr("sub_block", "body");
}

}  // namespace

std::unique_ptr<OpRegistry> test_registry() {
  auto registry = std::make_unique<OpRegistry>();
  registry->add(mul());
  registry->add(fill());
  registry->add(cond());
  registry->add(cond_grad());
  registry->add(OpDef("feed")
                    .input("X", "holder", Arity::kOne, kFeedFetch)
                    .output("Out", "var")
                    .attr("col", 0));
  for (const char* const type : {"fetch", "fetch_v2"}) {
    registry->add(OpDef(type)
                      .input("X", "var")
                      .output("Out", "holder", Arity::kOne, kFeedFetch | kTensorArray)
                      .attr("col", 0));
  }
  registry->add(OpDef("serve")
                    .input("X", "gradients", Arity::kAny)
                    .blocks_attr("optimize_blocks", "updates")
                    .capability(Capability::kNetwork)
                    .side_effects());
  registry->add(OpDef("save")
                    .input("X", "var")
                    .attr("file_path", "")
                    .capability(Capability::kFile)
                    .side_effects());
  registry->add(OpDef("script")
                    .input("X", "vars", Arity::kAny)
                    .output("Out", "vars", Arity::kAny)
                    .capability(Capability::kHostCode)
                    .unsupported("there is no interpreter"));
  registry->add(OpDef("stack")
                    .input("X", "tensors", Arity::kMany)
                    .output("Y", "tensor")
                    .intermediate("Saved", "for the gradient"));
  registry->add(OpDef("plugin").open_slots());
  return registry;
}

}  // namespace millrace::ops
