#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace mul_ops {
namespace {

struct Split {
  int64_t x;
  int64_t y;
};

// The dims at which the operands are folded into matrices. Each side must keep at least one dim.
StatusOr<Split> splits(const InferContext& ctx) {
  const Split split{ctx.attr<int32_t>("x_num_col_dims"), ctx.attr<int32_t>("y_num_col_dims")};
  const auto rank_x = static_cast<int64_t>(ctx.input("X").rank());
  const auto rank_y = static_cast<int64_t>(ctx.input("Y").rank());
  if (split.x < 1 || split.x >= rank_x) {
    return ctx.error("attribute 'x_num_col_dims' is {}, which is outside of [1, {}) for X {}",
                     split.x, rank_x, dims_text(ctx.input("X").dims));
  }
  if (split.y < 1 || split.y >= rank_y) {
    return ctx.error("attribute 'y_num_col_dims' is {}, which is outside of [1, {}) for Y {}",
                     split.y, rank_y, dims_text(ctx.input("Y").dims));
  }
  return split;
}

Status infer(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& y = ctx.input("Y");
  if (!dims_known(x) || !dims_known(y)) {
    VarMeta out = shapeless_meta(x.dtype);
    out.lod_level = x.lod_level;
    out.lod = x.lod;
    ctx.set_output("Out", std::move(out));
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const Split split, splits(ctx));
  const llvm::ArrayRef<int64_t> xd = x.dims;
  const llvm::ArrayRef<int64_t> yd = y.dims;
  const int64_t width = dims_product(xd.drop_front(static_cast<size_t>(split.x)));
  const int64_t height = dims_product(yd.take_front(static_cast<size_t>(split.y)));
  if (!dims_agree(width, height)) {
    return ctx.error(
        "X {} with x_num_col_dims {} has {} columns, but Y {} with y_num_col_dims {} has {} rows",
        dims_text(xd), split.x, width, dims_text(yd), split.y, height);
  }
  Dims out(xd.begin(), xd.begin() + split.x);
  out.append(yd.begin() + split.y, yd.end());
  ctx.set_output("Out", tensor_with_lod_of(x, x.dtype, out));
  return Ok();
}

// Two operations for each element of X and column of Y; the gradient op does two such products.
double flops(const InferContext& ctx) {
  const VarMeta& y = ctx.input("Y");
  double columns = 1;
  const auto first = static_cast<size_t>(std::max(0, ctx.attr<int32_t>("y_num_col_dims")));
  for (size_t i = first; dims_known(y) && i < y.rank(); ++i)
    columns *= y.dims[i] < 0 ? 1.0 : static_cast<double>(y.dims[i]);
  const double one = 2 * element_count(ctx.input("X")) * columns;
  return ctx.def().forward() != nullptr ? 2 * one : one;
}

Status infer_summed_grad(InferContext& ctx) {
  ctx.copy("X", "X@GRAD");
  ctx.copy("Y", "Y@GRAD");
  return Ok();
}

double summed_grad_flops(const InferContext& ctx) {
  return 2 * flops(ctx);
}

OpDef summed_mul_grad() {
  return OpDef("summed_mul_grad")
      .doc("mul_grad that adds to a gradient of X; made by the rewrite accumulate-gradients")
      .input("X", "as in mul")
      .input("Y", "as in mul")
      .input("Out@GRAD", "gradient of the product")
      .input("MoreX@GRAD", "what the gradient of X is added to; shape of X", Arity::kOptional)
      .output("X@GRAD", "sum of the two gradients of X")
      .output("Y@GRAD", "gradient of Y", Arity::kOptional)
      .attr("x_num_col_dims", 1, "as in mul")
      .range(1)
      .attr("y_num_col_dims", 1, "as in mul")
      .range(1)
      .infer(infer_summed_grad)
      .flops(summed_grad_flops)
      .inplace("MoreX@GRAD", "X@GRAD");
}

OpDef mul() {
  return OpDef("mul")
      .doc("product of two matrices; operands of higher rank are folded into matrices")
      .input("X", "rank >= 2; dims from x_num_col_dims on are the columns")
      .input("Y", "rank >= 2; dims before y_num_col_dims are the rows")
      .output("Out", "leading dims of X, then trailing dims of Y; LoD of X")
      .attr("x_num_col_dims", 1, "leading dims of X that form the rows")
      .range(1)
      .attr("y_num_col_dims", 1, "leading dims of Y that form the rows")
      .range(1)
      .infer(infer)
      .grad({.type = "mul_grad", .inputs = {"Out@GRAD", "X", "Y"}, .outputs = {"X@GRAD", "Y@GRAD"}})
      .flops(flops);
}

}  // namespace
}  // namespace mul_ops

void add_math_mul(OpRegistry& registry) {
  using namespace mul_ops;
  registry.add(summed_mul_grad());
  registry.add(mul());
}

}  // namespace millrace::ops
