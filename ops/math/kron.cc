#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace kron {
namespace {

Status infer(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& y = ctx.input("Y");
  if (!dims_known(x) || !dims_known(y)) {
    ctx.set_output("Out", shapeless_meta(x.dtype));
    return Ok();
  }
  const size_t rank = std::max(x.rank(), y.rank());
  Dims out;
  for (size_t i = 0; i < rank; ++i) {
    // Missing leading dims are 1.
    const int64_t a = i < rank - x.rank() ? 1 : x.dims[i - (rank - x.rank())];
    const int64_t b = i < rank - y.rank() ? 1 : y.dims[i - (rank - y.rank())];
    out.push_back(dims_product({a, b}));
  }
  ctx.set_output("Out", x.dtype, out);
  return Ok();
}

double flops(const InferContext& ctx) {
  return element_count(ctx.input("X")) * element_count(ctx.input("Y"));
}

}  // namespace
}  // namespace kron

void add_math_kron(OpRegistry& registry) {
  using namespace kron;
  registry.add(OpDef("kron")
                   .doc("Kronecker product: each element of X times the whole of Y")
                   .input("X", "any shape")
                   .input("Y", "any shape")
                   .output("Out", "dim by dim the product of both sizes, aligned at the end")
                   .infer(infer)
                   .grad({.type = "kron_grad",
                          .inputs = {"Out@GRAD", "X", "Y"},
                          .outputs = {"X@GRAD", "Y@GRAD"}})
                   .flops(flops));
}

}  // namespace millrace::ops
