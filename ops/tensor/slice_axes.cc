#include "ops/tensor/slice_axes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <llvm/ADT/STLExtras.h>

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace {

struct Cuts {
  std::vector<int64_t> axes;
  std::vector<int64_t> starts;
  std::vector<int64_t> ends;
  std::vector<int64_t> strides;
  std::vector<int64_t> flags;
  // Some bounds are in tensors: those that flags mark, or all if there are no flags.
  bool dynamic = false;

  [[nodiscard]] bool known(size_t i) const {
    if (i < flags.size()) return flags[i] != -1 && (!dynamic || i < starts.size());
    return !dynamic;
  }
};

bool has_any(const InferContext& ctx, std::initializer_list<llvm::StringRef> slots) {
  return std::any_of(slots.begin(), slots.end(),
                     [&](llvm::StringRef slot) { return ctx.has_input(slot); });
}

StatusOr<Cuts> read_cuts(const InferContext& ctx) {
  Cuts cuts;
  cuts.axes = ctx.attr<std::vector<int64_t>>("axes");
  cuts.starts = ctx.attr<std::vector<int64_t>>("starts");
  cuts.ends = ctx.attr<std::vector<int64_t>>("ends");
  cuts.strides = ctx.attr<std::vector<int64_t>>("strides");
  cuts.flags = ctx.attr<std::vector<int64_t>>("infer_flags");
  cuts.dynamic = has_any(ctx, {"StartsTensor", "EndsTensor", "StridesTensor", "StartsTensorList",
                               "EndsTensorList", "StridesTensorList"});
  const auto wrong = [&](const std::vector<int64_t>& list) {
    return list.size() != cuts.axes.size() && !(list.empty() && cuts.dynamic);
  };
  if (wrong(cuts.starts) || wrong(cuts.ends)) {
    return ctx.error(
        "attributes 'axes', 'starts' and 'ends' must have the same length, found {}, {} and {}",
        cuts.axes.size(), cuts.starts.size(), cuts.ends.size());
  }
  if (!cuts.strides.empty() && cuts.strides.size() != cuts.axes.size()) {
    return ctx.error("attribute 'strides' must be as long as 'axes' ({}), found {}",
                     cuts.axes.size(), cuts.strides.size());
  }
  return cuts;
}

StatusOr<Dims> cut_dims(const InferContext& ctx, const VarMeta& input, const Cuts& cuts,
                        SliceSizeFn size_of) {
  Dims dims = input.dims;
  for (size_t i = 0; i < cuts.axes.size(); ++i) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t axis,
                              checked_axis(ctx, "axes", cuts.axes[i], input.rank()));
    if (input.rank() == 0) return ctx.error("Input must have at least one dim");
    int64_t& dim = dims[static_cast<size_t>(axis)];
    const int64_t stride = cuts.strides.empty() ? 1 : cuts.strides[i];
    const bool known = cuts.known(i) && i < cuts.starts.size() && i < cuts.ends.size();
    if (known && stride == 0) return ctx.error("attribute 'strides' must not have 0 at {}", i);
    // Larger values would make the sums of bounds and sizes overflow.
    constexpr int64_t kLimit = int64_t{1} << 61;
    const auto bounded = [&](int64_t at) { return std::clamp(at, -kLimit, kLimit); };
    const bool computable = known && dim >= 0 && dim < kLimit;
    dim = computable ? size_of(dim, bounded(cuts.starts[i]), bounded(cuts.ends[i]), bounded(stride))
                     : -1;
  }
  return dims;
}

StatusOr<Dims> drop_dims(const InferContext& ctx, const Dims& dims,
                         llvm::ArrayRef<int64_t> decrease) {
  std::vector<bool> gone(std::max<size_t>(dims.size(), 1), false);
  for (const int64_t axis : decrease) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t at,
                              checked_axis(ctx, "decrease_axis", axis, dims.size()));
    gone[static_cast<size_t>(at)] = true;
  }
  Dims out;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!gone[i]) {
      out.push_back(dims[i]);
    } else if (!dims_agree(dims[i], 1)) {
      return ctx.error("attribute 'decrease_axis' drops dim {} of {}, expected size 1, found {}", i,
                       dims_text(dims), dims[i]);
    }
  }
  return out;
}

}  // namespace

Status infer_sliced(InferContext& ctx, SliceSizeFn size_of, bool strided) {
  VarMeta out = ctx.input("Input");
  const auto decrease = ctx.attr<std::vector<int64_t>>("decrease_axis");
  if (out.kind == VarKind::kLodTensorArray) {
    if (!decrease.empty()) out.kind = VarKind::kLodTensor;
    ctx.set_output("Out", std::move(out));
    return Ok();
  }
  if (!out.has_shape) {
    ctx.set_output("Out", strided ? with_offsets_of(unknown_like(out), out) : unknown_like(out));
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const Cuts cuts, read_cuts(ctx));
  MILLRACE_ASSIGN_OR_RETURN(const Dims dims, cut_dims(ctx, out, cuts, size_of));
  MILLRACE_ASSIGN_OR_RETURN(out.dims, drop_dims(ctx, dims, decrease));
  if (strided && out.dims.empty()) out.dims = {1};
  // A slice of the rows does not keep the sequences.
  if (llvm::is_contained(cuts.axes, 0)) out = without_lod(std::move(out));
  if (strided) out.lod = ctx.input("Input").lod;
  ctx.set_output("Out", std::move(out));
  return Ok();
}

}  // namespace millrace::ops
