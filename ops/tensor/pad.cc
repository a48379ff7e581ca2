#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace {

// Adds the padding before and after to a dim. Negative padding shrinks it.
Status grow(const InferContext& ctx, int64_t before, int64_t after, size_t at, Dims& dims) {
  int64_t& dim = dims[at];
  if (dim < 0) return Ok();
  int64_t size = 0;
  if (__builtin_add_overflow(dim, before, &size) || __builtin_add_overflow(size, after, &size)) {
    dim = -1;
    return Ok();
  }
  if (size < 0) {
    return ctx.error("attribute 'paddings' makes dim {} of X negative: {} + {} + {}", at, dim,
                     before, after);
  }
  dim = size;
  return Ok();
}

Status infer_pad_op(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  if (!x.has_shape) {
    ctx.set_output("Out", unknown_like(x));
    return Ok();
  }
  const auto paddings = ctx.attr<std::vector<int64_t>>("paddings");
  if (paddings.size() != 2 * x.rank()) {
    return ctx.error("attribute 'paddings' must have two entries for each dim of X {}, found {}",
                     dims_text(x.dims), paddings.size());
  }
  Dims dims = x.dims;
  for (size_t i = 0; i < dims.size(); ++i)
    MILLRACE_RETURN_IF_ERROR(grow(ctx, paddings[2 * i], paddings[2 * i + 1], i, dims));
  ctx.set_output("Out", keep_lod_of_same_rows(x, dims));
  return Ok();
}

// The gradient op does not read X; the shape of X is computed from the paddings.
Status infer_pad_grad(InferContext& ctx) {
  const VarMeta grad = ctx.input("Out@GRAD");
  if (ctx.has_input("X")) {
    ctx.set_output("X@GRAD", without_offsets(ctx.input("X")));
    return Ok();
  }
  const auto paddings = ctx.attr<std::vector<int64_t>>("paddings");
  if (!grad.has_shape || paddings.size() != 2 * grad.rank()) return Ok();
  Dims dims = grad.dims;
  for (size_t i = 0; i < dims.size(); ++i)
    MILLRACE_RETURN_IF_ERROR(grow(ctx, -paddings[2 * i], -paddings[2 * i + 1], i, dims));
  ctx.set_output("X@GRAD", without_offsets(keep_lod_of_same_rows(grad, dims)));
  return Ok();
}

// Pads the spatial dims. The list has a pair for each of them, starting with the last dim if
// last_first (pad3d), else with the first one (pad2d).
Status infer_spatial(InferContext& ctx, size_t spatial, bool last_first) {
  const VarMeta x = ctx.input("X");
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", spatial + 2, spatial + 2));
  if (!x.has_shape) {
    ctx.set_output("Out", unknown_like(x));
    return Ok();
  }
  const bool channels_last = llvm::StringRef(ctx.attr<std::string>("data_format")).endswith("C");
  const size_t first = channels_last ? 1 : 2;
  const auto paddings = ctx.attr<std::vector<int64_t>>("paddings");
  const bool dynamic = ctx.has_input("Paddings");
  if (!dynamic && paddings.size() != 2 * spatial) {
    return ctx.error("attribute 'paddings' must have {} entries, found {}", 2 * spatial,
                     paddings.size());
  }
  Dims dims = x.dims;
  for (size_t i = 0; i < spatial; ++i) {
    const size_t pair = last_first ? spatial - 1 - i : i;
    if (dynamic) {
      dims[first + i] = -1;
    } else {
      MILLRACE_RETURN_IF_ERROR(
          grow(ctx, paddings[2 * pair], paddings[2 * pair + 1], first + i, dims));
    }
  }
  ctx.set_output("Out", with_dims(x, dims));
  return Ok();
}

Status infer_pad2d(InferContext& ctx) {
  return infer_spatial(ctx, 2, /*last_first=*/false);
}

Status infer_pad3d(InferContext& ctx) {
  return infer_spatial(ctx, 3, /*last_first=*/true);
}

Status infer_pad_constant_like(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  const VarMeta y = ctx.input("Y");
  bool fits = true;
  if (x.has_shape && y.has_shape) {
    fits = x.rank() == y.rank();
    for (size_t i = 0; fits && i < x.rank(); ++i) {
      fits = x.dims[i] < 0 || y.dims[i] < 0 || x.dims[i] >= y.dims[i];
    }
  }
  if (!fits) {
    return ctx.error("no dim of Y {} may be larger than that of X {}", dims_text(y.dims),
                     dims_text(x.dims));
  }
  VarMeta out = x;
  out.dtype = y.dtype;
  ctx.set_output("Out", std::move(out));
  return Ok();
}

}  // namespace

/// pad, pad2d, pad3d, pad_constant_like
void add_tensor_pad(OpRegistry& registry) {
  registry.add(OpDef("pad")
                   .doc("X with a border of one value")
                   .input("X", "any shape")
                   .output("Out", "dims of X and the paddings")
                   .required_attr<std::vector<int32_t>>("paddings", "before, after of each dim")
                   .attr("pad_value", 0.0F, "value of the border")
                   .infer(infer_pad_op)
                   .grad({.type = "pad_grad",
                          .inputs = {"Out@GRAD"},
                          .outputs = {"X@GRAD"},
                          .infer = infer_pad_grad}));
  registry.add(OpDef("pad2d")
                   .doc("X with a border around its two spatial dims")
                   .input("X", "rank 4")
                   .input("Paddings", "four elements; replaces the attribute", Arity::kOptional)
                   .output("Out", "X with larger spatial dims")
                   .attr("paddings", std::vector<int32_t>{0, 0, 0, 0}, "top, bottom, left, right")
                   .attr("pad_value", 0.0F, "value of the border in mode constant")
                   .attr("mode", "constant")
                   .one_of({"constant", "reflect", "edge"})
                   .attr("data_format", "NCHW")
                   .one_of({"NCHW", "NHWC"})
                   .infer(infer_pad2d)
                   .grad(grad_of_x("pad2d_grad", {"X", "Paddings"})));
  registry.add(OpDef("pad3d")
                   .doc("X with a border around its three spatial dims")
                   .input("X", "rank 5")
                   .input("Paddings", "six elements; replaces the attribute", Arity::kOptional)
                   .output("Out", "X with larger spatial dims")
                   .attr("paddings", std::vector<int32_t>{},
                         "left, right, top, bottom, front, back; none with input Paddings")
                   .attr("value", 0.0F, "value of the border in mode constant")
                   .attr("mode", "constant")
                   .one_of({"constant", "reflect", "replicate", "circular"})
                   .attr("data_format", "NCDHW")
                   .one_of({"NCDHW", "NDHWC"})
                   .infer(infer_pad3d)
                   .grad(grad_of_x("pad3d_grad", {"X", "Paddings"})));
  registry.add(OpDef("pad_constant_like")
                   .doc("Y padded at the end of each dim to the shape of X")
                   .input("X", "determines the shape; its data is not read")
                   .input("Y", "rank of X, no dim larger")
                   .output("Out", "shape of X, dtype of Y")
                   .attr("pad_value", 0.0F, "value of the border")
                   .infer(infer_pad_constant_like)
                   .grad({.type = "pad_constant_like_grad",
                          .inputs = {"Y", "Out@GRAD"},
                          .outputs = {"Y@GRAD"}}));
}

}  // namespace millrace::ops
