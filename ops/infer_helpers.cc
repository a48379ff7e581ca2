#include "ops/infer_helpers.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <llvm/ADT/STLExtras.h>

namespace millrace::ops {
namespace infer_helpers {
namespace {

std::string_view view(llvm::StringRef text) {
  return {text.data(), text.size()};
}

// Broadcast result of two dims; nullopt if they differ and neither is 1.
std::optional<int64_t> stretch(int64_t a, int64_t b) {
  if (a == b || b == 1) return a;
  if (a == 1) return b;
  // One side is unknown: at run time it is 1 or equals the other.
  if (a < 0) return b;
  if (b < 0) return a;
  return std::nullopt;
}

// Number of elements; -1 if it is unknown.
int64_t known_count(const VarMeta& meta) {
  return dims_known(meta) ? dims_product(meta.dims) : -1;
}

// Dims of 1 do not change which elements belong together. Unknown dims may be 1.
bool same_beside_ones(const VarMeta& a, const VarMeta& b) {
  if (known_count(a) < 0 || known_count(b) < 0) return true;
  const auto beside_ones = [](llvm::ArrayRef<int64_t> dims) {
    Dims rest;
    llvm::copy_if(dims, std::back_inserter(rest), [](int64_t dim) { return dim != 1; });
    return rest;
  };
  return beside_ones(a.dims) == beside_ones(b.dims);
}

// The error for two vars that must agree in what is named.
Status disagreement(const InferContext& ctx, std::string_view what, llvm::StringRef slot_a,
                    llvm::StringRef slot_b, size_t index) {
  return ctx.error("{} and {} must have the same {}, found {} and {}", view(slot_a), view(slot_b),
                   what, dims_text(ctx.input(slot_a, index).dims),
                   dims_text(ctx.input(slot_b, index).dims));
}

}  // namespace
}  // namespace infer_helpers

bool dims_known(const VarMeta& meta) {
  return meta.has_shape && !(meta.kind == VarKind::kSelectedRows && meta.dims.empty());
}

bool same_dims(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  return std::ranges::equal(a, b, dims_agree);
}

std::optional<Dims> aligned_dims(llvm::ArrayRef<int64_t> dims, size_t start, size_t rank) {
  while (start + dims.size() > rank && !dims.empty() && dims.back() == 1) dims = dims.drop_back();
  if (start + dims.size() > rank) return std::nullopt;
  Dims out(rank, 1);
  std::copy(dims.begin(), dims.end(), out.begin() + static_cast<std::ptrdiff_t>(start));
  return out;
}

VarMeta tensor_meta(DType dtype, llvm::ArrayRef<int64_t> dims, int32_t lod_level) {
  VarMeta meta;
  meta.dtype = dtype;
  meta.dims.assign(dims.begin(), dims.end());
  meta.lod_level = lod_level;
  return meta;
}

VarMeta shapeless_meta(DType dtype) {
  VarMeta meta;
  meta.dtype = dtype;
  meta.has_shape = false;
  return meta;
}

VarMeta with_dims(const VarMeta& meta, llvm::ArrayRef<int64_t> dims) {
  VarMeta out = meta;
  out.dims.assign(dims.begin(), dims.end());
  out.has_shape = true;
  return out;
}

double element_count(const VarMeta& meta) {
  double count = 1;
  if (!meta.has_shape) return count;
  for (const int64_t dim : meta.dims) count *= dim < 0 ? 1.0 : static_cast<double>(dim);
  return count;
}

double elementwise_flops(const InferContext& ctx) {
  double largest = 1;
  for (const SlotDef& slot : ctx.def().inputs()) {
    double sum = 0;
    for (size_t i = 0; i < ctx.input_count(slot.name); ++i)
      sum += element_count(ctx.input(slot.name, i));
    largest = std::max(largest, sum);
  }
  return largest;
}

Status infer_unary(InferContext& ctx) {
  ctx.copy("X", "Out");
  return Ok();
}

Status infer_unary_bool(InferContext& ctx) {
  VarMeta meta = ctx.input("X");
  meta.dtype = DType::kBool;
  ctx.set_output("Out", std::move(meta));
  return Ok();
}

size_t paired_args(const InferContext& ctx, llvm::StringRef input_slot,
                   llvm::StringRef output_slot) {
  const Slot* const inputs = ctx.op().find_input(input_slot);
  const Slot* const outputs = ctx.op().find_output(output_slot);
  if (inputs == nullptr || outputs == nullptr) return 0;
  return std::min(inputs->args.size(), outputs->args.size());
}

void copy_each(InferContext& ctx, llvm::StringRef input_slot, llvm::StringRef output_slot) {
  const size_t count = paired_args(ctx, input_slot, output_slot);
  for (size_t i = 0; i < count; ++i) ctx.set_output(output_slot, ctx.input(input_slot, i), i);
}

StatusOr<DType> checked_dtype(const InferContext& ctx, llvm::StringRef attr) {
  const DType dtype = ctx.dtype_attr(attr);
  if (is_valid(dtype)) return dtype;
  return ctx.error("attribute '{}' is {}, which is not an element type", infer_helpers::view(attr),
                   static_cast<int32_t>(dtype));
}

StatusOr<int64_t> checked_axis(const InferContext& ctx, llvm::StringRef attr, int64_t axis,
                               size_t rank) {
  const size_t bound = std::max<size_t>(rank, 1);
  if (const auto normal = normalize_axis(axis, bound)) return *normal;
  return ctx.error("attribute '{}' has axis {}, which is outside of [-{}, {}) for rank {}",
                   infer_helpers::view(attr), axis, bound, bound, rank);
}

StatusOr<std::optional<Dims>> broadcast_dims(const InferContext& ctx, llvm::StringRef slot_x,
                                             llvm::StringRef slot_y, int64_t axis) {
  using namespace infer_helpers;
  const VarMeta& x = ctx.input(slot_x);
  const VarMeta& y = ctx.input(slot_y);
  if (!dims_known(x) || !dims_known(y)) return std::optional<Dims>{};
  const size_t rank = std::max(x.rank(), y.rank());
  const size_t lower = std::min(x.rank(), y.rank());
  if (axis == -1) axis = static_cast<int64_t>(rank - lower);
  if (axis < 0 || axis > static_cast<int64_t>(rank)) {
    return ctx.error("attribute 'axis' is {}, which is outside of [-1, {}] for {} {} and {} {}",
                     axis, rank, view(slot_x), dims_text(x.dims), view(slot_y), dims_text(y.dims));
  }
  // With equal ranks the axis has no effect, and old programs hold any value there.
  const int64_t start = x.rank() == y.rank() ? 0 : axis;
  const auto a = aligned_dims(x.dims, x.rank() < y.rank() ? start : 0, rank);
  const auto b = aligned_dims(y.dims, y.rank() < x.rank() ? start : 0, rank);
  bool fits = a && b;
  Dims out(rank, -1);
  for (size_t i = 0; fits && i < rank; ++i) {
    const auto dim = stretch((*a)[i], (*b)[i]);
    fits = dim.has_value();
    if (dim) out[i] = *dim;
  }
  if (!fits) {
    return ctx.error("{} {} and {} {} cannot be broadcast with axis {}", view(slot_x),
                     dims_text(x.dims), view(slot_y), dims_text(y.dims), axis);
  }
  return std::optional<Dims>(std::move(out));
}

Status infer_broadcast(InferContext& ctx, llvm::StringRef slot_x, llvm::StringRef slot_y,
                       llvm::StringRef slot_out, int64_t axis, std::optional<DType> dtype) {
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<Dims> dims,
                            broadcast_dims(ctx, slot_x, slot_y, axis));
  VarMeta out = ctx.input(slot_x);
  if (dims) {
    out.dims = *dims;
  } else if (!(out.kind == VarKind::kSelectedRows && out.has_shape)) {
    // A SELECTED_ROWS operand without declared dims keeps its meta without dims.
    out.has_shape = false;
  }
  if (dtype) out.dtype = *dtype;
  ctx.set_output(slot_out, std::move(out));
  return Ok();
}

StatusOr<Dims> reduced_dims(const InferContext& ctx, llvm::StringRef attr,
                            llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> axes, bool all,
                            bool keep_dims) {
  std::vector<bool> gone(std::max<size_t>(dims.size(), 1), all || axes.empty());
  for (const int64_t axis : axes) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t normal, checked_axis(ctx, attr, axis, dims.size()));
    gone[static_cast<size_t>(normal)] = true;
  }
  Dims out;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!gone[i]) {
      out.push_back(dims[i]);
    } else if (keep_dims) {
      out.push_back(1);
    }
  }
  return out;
}

Status infer_over_axes(InferContext& ctx, llvm::ArrayRef<int64_t> axes, bool all) {
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) {
    ctx.set_output("Out", shapeless_meta(x.dtype));
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(
      const Dims dims, reduced_dims(ctx, "axis", x.dims, axes, all, ctx.attr<bool>("keepdim")));
  ctx.set_output("Out", x.dtype, dims);
  return Ok();
}

Status check_same_dims(const InferContext& ctx, llvm::StringRef slot_a, llvm::StringRef slot_b,
                       size_t index) {
  const VarMeta& a = ctx.input(slot_a, index);
  const VarMeta& b = ctx.input(slot_b, index);
  if (!dims_known(a) || !dims_known(b) || same_dims(a.dims, b.dims)) return Ok();
  return infer_helpers::disagreement(ctx, "shape", slot_a, slot_b, index);
}

Status check_same_count(const InferContext& ctx, llvm::StringRef slot_a, llvm::StringRef slot_b,
                        size_t index) {
  using namespace infer_helpers;
  const VarMeta& a = ctx.input(slot_a, index);
  const VarMeta& b = ctx.input(slot_b, index);
  if (!dims_agree(known_count(a), known_count(b)))
    return disagreement(ctx, "number of elements", slot_a, slot_b, index);
  if (same_beside_ones(a, b)) return Ok();
  return disagreement(ctx, "dims other than 1", slot_a, slot_b, index);
}

Status check_rank(const InferContext& ctx, llvm::StringRef slot, size_t min_rank, size_t max_rank) {
  using namespace infer_helpers;
  const VarMeta& meta = ctx.input(slot);
  if (!dims_known(meta) || (meta.rank() >= min_rank && meta.rank() <= max_rank)) return Ok();
  if (min_rank == max_rank) {
    return ctx.error("{} must have rank {}, found {}", view(slot), min_rank, dims_text(meta.dims));
  }
  return ctx.error("{} must have a rank from {} to {}, found {}", view(slot), min_rank, max_rank,
                   dims_text(meta.dims));
}

Status check_elements(const InferContext& ctx, llvm::StringRef slot, int64_t count, size_t index) {
  const VarMeta& meta = ctx.input(slot, index);
  if (!dims_known(meta)) return Ok();
  const int64_t found = dims_product(meta.dims);
  if (found < 0 || found == count) return Ok();
  return ctx.error("{} must have {} element{}, found {}", infer_helpers::view(slot), count,
                   count == 1 ? "" : "s", dims_text(meta.dims));
}

StatusOr<std::optional<Dims>> shape_from_attr(const InferContext& ctx) {
  const auto own = ctx.attr<std::vector<int64_t>>("shape");
  if (const size_t parts = ctx.input_count("ShapeTensorList"); parts > 0) {
    Dims dims(parts, -1);
    if (own.size() == parts) std::copy(own.begin(), own.end(), dims.begin());
    return std::optional<Dims>(std::move(dims));
  }
  if (ctx.has_input("ShapeTensor")) {
    const VarMeta& shape = ctx.input("ShapeTensor");
    const int64_t rank = dims_known(shape) ? dims_product(shape.dims) : -1;
    // A shape cannot have that many dims; treat the length as unknown.
    if (rank < 0 || rank > 64) return std::optional<Dims>{};
    return std::optional<Dims>(Dims(static_cast<size_t>(rank), -1));
  }
  for (const int64_t dim : own) {
    if (dim < -1) return ctx.error("attribute 'shape' has dim {}, expected a size or -1", dim);
  }
  return std::optional<Dims>(Dims(own.begin(), own.end()));
}

}  // namespace millrace::ops
