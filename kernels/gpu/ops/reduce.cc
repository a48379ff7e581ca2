#include <algorithm>

#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

// Sums and means over all dims, or over the last dims.
namespace millrace::gpu {
namespace {

// The dims to reduce.
struct Axes {
  std::vector<int64_t> dims;
  bool all = true;

  /// Number of elements of the remaining dims, if the reduced ones are the last. Errors: rejects
  /// other dims.
  [[nodiscard]] StatusOr<int64_t> kept(const Tensor& x) const {
    if (all || dims.empty()) return int64_t{1};
    const auto rank = static_cast<int64_t>(x.rank());
    std::vector<bool> goes(x.rank(), false);
    for (const int64_t dim : dims) {
      const int64_t at = dim < 0 ? dim + rank : dim;
      if (at < 0 || at >= rank) return refuse("attribute 'dim' has {}", dim);
      goes[static_cast<size_t>(at)] = true;
    }
    if (!std::is_sorted(goes.begin(), goes.end()))
      return refuse("the GPU kernel reduces last dims only");
    int64_t count = 1;
    for (size_t i = 0; i < goes.size(); ++i) count *= goes[i] ? 1 : x.dims()[i];
    return count;
  }
};

StatusOr<Axes> read_axes(const KernelSetup& op) {
  if (op.def().find_attr("reduce_all") == nullptr) return Axes();  // mean
  if (op.inputs("AxisTensor").count > 0 || op.inputs("AxisTensorList").count > 0)
    return refuse("axes given as tensors are read on the CPU");
  for (const char* const name : {"in_dtype", "out_dtype"}) {
    if (const auto type = op.attr<int32_t>(name); type != -1 && type != 5)
      return refuse("attribute '{}' is {}", name, type);
  }
  return Axes{op.attr<std::vector<int64_t>>("dim"), op.attr<bool>("reduce_all")};
}

template <bool kMean>
StatusOr<Kernel> forward_reduce(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(Axes axes, read_axes(op));
  return Kernel([axes = std::move(axes), args = FloatArgs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatOperands found, args.find(ctx));
    const auto [from, to] = found;
    MILLRACE_ASSIGN_OR_RETURN(const int64_t kept, axes.kept(*from));
    if (from->numel() == 0 || to->numel() != kept) return refuse("X {}", describe(*from));
    const int64_t gone = from->numel() / kept;
    const float factor = kMean ? 1.0F / static_cast<float>(gone) : 1.0F;
    return rows(args.device, SumMiddle{floats(from), floats(to), 1, kept, gone, factor}, kept);
  });
}

// Every element gets the gradient of its sum; only for a single sum.
template <bool kMean>
StatusOr<Kernel> backward_reduce(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(Axes axes, read_axes(op));
  return Kernel([&device = device_of(op), axes = std::move(axes), x = op.input("X"),
                 dout = op.input("Out@GRAD"),
                 dx = op.output("X@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *from));
    if (to == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(all_floats({from, d}));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t kept, axes.kept(*from));
    if (kept != 1 || d->numel() != 1)
      return refuse("the GPU kernel spreads the gradient of one sum only");
    const float factor = kMean ? 1.0F / static_cast<float>(from->numel()) : 1.0F;
    return each(device, FillFrom{floats(d), floats(to), factor}, to->numel());
  });
}

}  // namespace

void add_reduce(KernelRegistry& registry) {
  registry.add("mean", forward_reduce<true>);
  registry.add("mean_grad", backward_reduce<true>);
  registry.add("reduce_mean", forward_reduce<true>);
  registry.add("reduce_mean_grad", backward_reduce<true>);
  registry.add("reduce_sum", forward_reduce<false>);
  registry.add("reduce_sum_grad", backward_reduce<false>);
}

}  // namespace millrace::gpu
