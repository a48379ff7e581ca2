#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace attention {
namespace {

Status infer(InferContext& ctx) {
  const VarMeta& q = ctx.input("Q");
  const VarMeta& k = ctx.input("K");
  const VarMeta& v = ctx.input("V");
  if (!dims_known(q) || !dims_known(k) || !dims_known(v)) return Ok();
  for (const char* const slot : {"Q", "K", "V"})
    MILLRACE_RETURN_IF_ERROR(check_rank(ctx, slot, 3, 3));
  if (!dims_agree(q.dims[0], k.dims[0]) || !dims_agree(q.dims[2], k.dims[2]) ||
      !dims_agree(k.dims[0], v.dims[0]) || !dims_agree(k.dims[1], v.dims[1])) {
    return ctx.error("Q {}, K {} and V {} do not match", dims_text(q.dims), dims_text(k.dims),
                     dims_text(v.dims));
  }
  const int64_t heads = ctx.attr<int32_t>("heads");
  for (const VarMeta* const meta : {&q, &v}) {
    if (meta->dims[2] > 0 && meta->dims[2] % heads != 0)
      return ctx.error("attribute 'heads' is {}, which does not divide {}", heads, meta->dims[2]);
  }
  ctx.set_output("Probs", tensor_meta(q.dtype, {q.dims[0], heads, q.dims[1], k.dims[1]}));
  // The last op that it replaces reads the result of a transpose, which has no LoD.
  ctx.set_output("Out", without_offsets(with_dims(q, {q.dims[0], q.dims[1], v.dims[2]})));
  return Ok();
}

// Two products of every row of Q with K and V.
double attention_flops(const InferContext& ctx) {
  const VarMeta& k = ctx.input("K");
  const double columns =
      dims_known(k) && k.rank() == 3 && k.dims[1] > 0 ? static_cast<double>(k.dims[1]) : 1.0;
  return 4.0 * element_count(ctx.input("Q")) * columns;
}

}  // namespace
}  // namespace attention

/// multi_head_attention
void add_nn_attention(OpRegistry& registry) {
  using namespace attention;
  registry.add(
      OpDef("multi_head_attention")
          .doc("softmax(scale * Q K' + Mask) V for every head; made by the rewrite fuse-attention")
          .input("Q", "[batch, rows, heads * width]")
          .input("K", "[batch, columns, heads * width]")
          .input("V", "[batch, columns, heads * width of V]")
          .input("Mask", "broadcast to [batch, heads, rows, columns]", Arity::kOptional)
          .output("Out", "[batch, rows, heads * width of V]; no LoD")
          .intermediate("Probs", "result of softmax, [batch, heads, rows, columns]")
          .attr("heads", 1, "number of heads")
          .range(1)
          .attr("scale", 1.0F, "factor of the products with K")
          .infer(infer)
          .flops(attention_flops)
          .grad({.type = "multi_head_attention_grad",
                 .inputs = {"K", "Out@GRAD", "Probs", "Q", "V"},
                 .outputs = {"K@GRAD", "Q@GRAD", "V@GRAD"}}));
}

}  // namespace millrace::ops
