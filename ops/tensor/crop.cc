#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace crop {
namespace {

// The shape in the attribute, with -1 for dims that a tensor holds or that extend to the end of X;
// nullopt if the rank is unknown.
std::optional<Dims> wanted_shape(const InferContext& ctx, const VarMeta& x) {
  const auto attr = ctx.attr<std::vector<int64_t>>("shape");
  if (ctx.has_input("Y")) {
    const VarMeta& y = ctx.input("Y");
    return y.has_shape ? std::optional<Dims>(y.dims) : std::nullopt;
  }
  if (std::optional<Dims> dims = dims_by_shape_tensor(ctx)) return dims;
  if (ctx.has_input("Shape")) return Dims(x.rank(), -1);
  return attr.empty() ? std::optional<Dims>(x.dims) : Dims(attr.begin(), attr.end());
}

// At run time, only the newer op passes LoD offsets on, even if the number of rows changes.
Status infer(InferContext& ctx, bool newer) {
  const VarMeta x = ctx.input("X");
  const std::optional<Dims> shape = x.has_shape ? wanted_shape(ctx, x) : std::nullopt;
  if (!shape) {
    ctx.set_output("Out", newer ? with_offsets_of(unknown_like(x), x) : unknown_like(x));
    return Ok();
  }
  if (shape->size() != x.rank()) {
    return ctx.error("the shape {} must have the rank of X {}", dims_text(*shape),
                     dims_text(x.dims));
  }
  const auto own = ctx.attr<std::vector<int32_t>>("offsets");
  const Dims offsets(own.begin(), own.end());
  const bool moved = ctx.has_input("Offsets") || ctx.has_input("OffsetsTensor");
  if (!moved && !offsets.empty() && offsets.size() != x.rank()) {
    return ctx.error("attribute 'offsets' must have an entry for each dim of X {}, found {}",
                     dims_text(x.dims), dims_text(offsets));
  }
  Dims dims = *shape;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < -1)
      return ctx.error("attribute 'shape' has {} at {}, expected a size or -1", dims[i], i);
    if (x.dims[i] < 0) continue;
    const int64_t offset = moved || offsets.empty() ? 0 : offsets[i];
    const bool from_attr = !ctx.has_input("Shape") && !ctx.has_input("ShapeTensor");
    if (dims[i] == -1 && from_attr && !moved && !ctx.has_input("Y")) dims[i] = x.dims[i] - offset;
    if (dims[i] >= 0 && (offset < 0 || dims[i] > x.dims[i] - offset)) {
      return ctx.error("dim {} of X {} is too small for offset {} and size {}", i,
                       dims_text(x.dims), offset, dims[i]);
    }
  }
  VarMeta out = keep_lod_of_same_rows(x, dims);
  out.lod = newer ? x.lod : Lod();
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer(InferContext& ctx) {
  return infer(ctx, /*newer=*/false);
}

Status infer_crop_tensor(InferContext& ctx) {
  return infer(ctx, /*newer=*/true);
}

}  // namespace
}  // namespace crop

/// crop, crop_tensor
void add_tensor_crop(OpRegistry& registry) {
  using namespace crop;
  registry.add(OpDef("crop")
                   .doc("the box of the given shape that starts at offsets")
                   .input("X", "at least one dim")
                   .input("Y", "its shape replaces attribute shape", Arity::kOptional)
                   .input("Offsets", "replaces attribute offsets", Arity::kOptional)
                   .output("Out", "the box")
                   .attr("offsets", std::vector<int32_t>{}, "first element in each dim")
                   .attr("shape", std::vector<int32_t>{}, "size in each dim; -1: the rest")
                   .range(-1)
                   .infer(infer)
                   .grad(without_offsets(grad_of_x("crop_grad", {"X", "Offsets"}))));
  registry.add(
      OpDef("crop_tensor")
          .doc("the box of the given shape that starts at offsets")
          .input("X", "at least one dim")
          .input("Shape", "replaces attribute shape", Arity::kOptional)
          .input("ShapeTensor", "one size for each dim", Arity::kAny)
          .input("Offsets", "replaces attribute offsets", Arity::kOptional)
          .input("OffsetsTensor", "one offset for each dim", Arity::kAny)
          .output("Out", "the box")
          .attr("shape", std::vector<int32_t>{}, "size in each dim; -1: the rest")
          .range(-1)
          .attr("offsets", std::vector<int32_t>{}, "first element in each dim")
          .infer(infer_crop_tensor)
          .grad(without_offsets(grad_of_x("crop_tensor_grad", {"X", "Offsets", "OffsetsTensor"}))));
}

}  // namespace millrace::ops
