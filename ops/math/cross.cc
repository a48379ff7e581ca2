#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace cross {
namespace {

// The default, larger than any rank, means "the first dim of size 3".
constexpr int32_t kFirstOfSizeThree = 9;

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "X", "Y"));
  const VarMeta& x = ctx.input("X");
  const int32_t dim = ctx.attr<int32_t>("dim");
  if (dims_known(x) && dim != kFirstOfSizeThree) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, checked_axis(ctx, "dim", dim, x.rank()));
    if (x.dims.empty() || !dims_agree(x.dims[static_cast<size_t>(axis)], 3)) {
      return ctx.error("attribute 'dim' is {}, which must name a dim of size 3 of X {}", dim,
                       dims_text(x.dims));
    }
  }
  return infer_unary(ctx);
}

}  // namespace
}  // namespace cross

void add_math_cross(OpRegistry& registry) {
  using namespace cross;
  registry.add(OpDef("cross")
                   .doc("cross product of vectors of three elements")
                   .input("X", "any shape with a dim of size 3")
                   .input("Y", "shape of X")
                   .output("Out", "shape of X")
                   .attr("dim", kFirstOfSizeThree, "dim of the vectors; 9: the first one of size 3")
                   .infer(infer)
                   .grad({.type = "cross_grad",
                          .inputs = {"Out@GRAD", "X", "Y"},
                          .outputs = {"X@GRAD", "Y@GRAD"}})
                   .flops(elementwise_flops));
}

}  // namespace millrace::ops
