#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace where {
namespace {

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "X", "Y"));
  MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "Condition", "X"));
  ctx.copy("X", "Out");
  return Ok();
}

Status infer_where_grad(InferContext& ctx) {
  ctx.set_output("X@GRAD", with_offsets_of(ctx.input("X"), ctx.input("Condition")));
  ctx.set_output("Y@GRAD", with_offsets_of(ctx.input("Y"), ctx.input("X")));
  return Ok();
}

Status infer_where_index(InferContext& ctx) {
  const VarMeta& condition = ctx.input("Condition");
  const int64_t rank = condition.has_shape ? static_cast<int64_t>(condition.rank()) : -1;
  ctx.set_output("Out", DType::kInt64, {-1, rank});
  return Ok();
}

Status infer_masked_select(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "X", "Mask"));
  ctx.set_output("Y", ctx.input("X").dtype, {-1});
  return Ok();
}

}  // namespace
}  // namespace where

/// where, where_index, masked_select
void add_tensor_where(OpRegistry& registry) {
  using namespace where;
  registry.add(OpDef("where")
                   .doc("X where Condition holds, else Y")
                   .input("Condition", "bool; shape of X")
                   .input("X", "any shape")
                   .input("Y", "shape of X")
                   .output("Out", "shape and dtype of X")
                   .infer(infer)
                   .grad({.type = "where_grad",
                          .inputs = {"Condition", "X", "Y", "Out@GRAD"},
                          .outputs = {"X@GRAD", "Y@GRAD"},
                          .infer = infer_where_grad}));
  registry.add(OpDef("where_index")
                   .doc("coordinates of the elements that are not zero")
                   .input("Condition", "bool or a number type; any shape")
                   .output("Out", "int64 [found, rank of Condition]")
                   .infer(infer_where_index));
  registry.add(OpDef("masked_select")
                   .doc("the elements of X where Mask holds, in order")
                   .input("X", "any shape")
                   .input("Mask", "bool; shape of X")
                   .output("Y", "[found]")
                   .infer(infer_masked_select)
                   .grad({.type = "masked_select_grad",
                          .inputs = {"X", "Mask", "Y@GRAD"},
                          .outputs = {"X@GRAD"}}));
}

}  // namespace millrace::ops
