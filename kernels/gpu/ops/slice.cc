#include "kernels/cpu/int_list.h"
#include "kernels/cpu/tensor/cut.h"
#include "kernels/gpu/ops/host_call.h"
#include "kernels/gpu/ops/walk.h"
#include "kernels/registry.h"

// Boxes of a tensor, of elements of any type.
namespace millrace::gpu {
namespace {

// Bounds of a call.
struct SliceSettings {
  std::vector<int64_t> axes;
  kernels::Ints starts, ends, strides;
};

// Bounds from attributes, or from tensors that the processor reads.
struct BoundsArgs {
  explicit BoundsArgs(const KernelSetup& op)
      : memory(&memory_of(op)),
        call(std::make_shared<HostCall>(op)),
        axes(op.attr<std::vector<int64_t>>("axes")),
        decrease(op.attr<std::vector<int64_t>>("decrease_axis")),
        starts(op, "starts", "StartsTensor", "StartsTensorList"),
        ends(op, "ends", "EndsTensor", "EndsTensorList"),
        strided(op.def().find_attr("strides") != nullptr) {
    if (strided) strides = kernels::IntList(op, "strides", "StridesTensor", "StridesTensorList");
    for (const char* const slot : {"StartsTensor", "StartsTensorList", "EndsTensor",
                                   "EndsTensorList", "StridesTensor", "StridesTensorList"})
      slots.push_back(op.inputs(slot));
    open = starts.dynamic() || ends.dynamic() || strides.dynamic();
    for (const int64_t flag : op.attr<std::vector<int64_t>>("infer_flags")) open |= flag < 0;
  }
  [[nodiscard]] StatusOr<SliceSettings> read(const KernelContext& ctx) const {
    SliceSettings s{axes, {}, {}, {}};
    if (open) MILLRACE_RETURN_IF_ERROR(call->read(*memory, ctx, slots));
    const KernelContext inside = open ? call->context(ctx) : ctx;
    MILLRACE_ASSIGN_OR_RETURN(s.starts, starts.read(inside));
    MILLRACE_ASSIGN_OR_RETURN(s.ends, ends.read(inside));
    if (strided) {
      MILLRACE_ASSIGN_OR_RETURN(s.strides, strides.read(inside));
    } else {
      s.strides.assign(axes.size(), 1);
    }
    if (s.starts.size() == axes.size() && s.ends.size() == axes.size() &&
        s.strides.size() == axes.size())
      return s;
    return refuse("there are other numbers of bounds than of axes");
  }
  // Sizes the result if inference did not know the bounds.
  Status size(Tensor& to, const Tensor& from, llvm::ArrayRef<kernels::Cut> cuts) const {
    if (!open) return Ok();
    llvm::SmallVector<bool, 8> gone(cuts.size(), false);
    for (const int64_t dropped : decrease) {
      StatusOr<int64_t> axis = kernels::axis_of(dropped, cuts.size());
      if (!axis.ok() || cuts[static_cast<size_t>(*axis)].count != 1)
        return refuse("dim {} is dropped", dropped);
      gone[static_cast<size_t>(*axis)] = true;
    }
    Dims dims;
    for (size_t i = 0; i < cuts.size(); ++i) {
      if (!gone[i]) dims.push_back(cuts[i].count);
    }
    if (strided && dims.empty()) dims = {1};
    return size_here(*memory, to, from.dtype(), dims);
  }

  Memory* memory;
  std::shared_ptr<HostCall> call;
  std::vector<ArgRange> slots;
  std::vector<int64_t> axes, decrease;
  kernels::IntList starts, ends, strides;
  bool strided;
  bool open = false;  // known when the op runs
};

// A slice of a tensor with these dims: the box of part and whole, and where it starts there.
struct Selected {
  Box<2> box;
  int64_t start = 0;
};

using Cuts = llvm::SmallVector<kernels::Cut, 6>;

StatusOr<Cuts> cuts_of(const SliceSettings& s, llvm::ArrayRef<int64_t> dims) {
  Cuts cuts;
  for (const int64_t dim : dims) cuts.push_back({0, dim, 1});
  const auto rank = static_cast<int64_t>(dims.size());
  for (size_t i = 0; i < s.axes.size(); ++i) {
    const int64_t axis = s.axes[i] < 0 ? s.axes[i] + rank : s.axes[i];
    if (axis < 0 || axis >= rank || s.strides[i] == 0) return refuse("axis {}", s.axes[i]);
    const auto at = static_cast<size_t>(axis);
    cuts[at] = kernels::cut_dim(dims[at], s.starts[i], s.ends[i], s.strides[i]);
  }
  return cuts;
}

// \param part_first  the part is operand 0, which is written
StatusOr<Selected> select(const Cuts& cuts, llvm::ArrayRef<int64_t> dims, const Tensor& part,
                          bool part_first) {
  const auto strides = row_major_strides(dims);
  llvm::SmallVector<int64_t, 6> extents;
  for (const kernels::Cut& cut : cuts) extents.push_back(cut.count);
  const auto dense = row_major_strides(extents);
  Selected found;
  for (size_t i = 0; i < cuts.size(); ++i) {
    const int64_t in_whole = cuts[i].stride * strides[i];
    if (part_first) {
      found.box.push(cuts[i].count, {dense[i], in_whole});
    } else {
      found.box.push(cuts[i].count, {in_whole, dense[i]});
    }
    found.start += cuts[i].first * strides[i];
  }
  if (found.box.count() != part.numel()) return refuse("the slice is {}", describe(part));
  return found;
}

StatusOr<Kernel> gpu_slice(const KernelSetup& op) {
  return Kernel([&device = device_of(op), args = BoundsArgs(op), input = op.input("Input"),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, input, "Input"));
    Tensor& to = ctx.out(out);
    MILLRACE_ASSIGN_OR_RETURN(const SliceSettings s, args.read(ctx));
    MILLRACE_ASSIGN_OR_RETURN(const Cuts cuts, cuts_of(s, from->dims()));
    MILLRACE_RETURN_IF_ERROR(args.size(to, *from, cuts));
    if (from->dtype() != to.dtype() || from->raw() == to.raw())
      return refuse("{} becomes {}", describe(*from), describe(to));
    MILLRACE_ASSIGN_OR_RETURN(const Selected found,
                              select(cuts, from->dims(), to, /*part_first=*/true));
    return move_elements(device, found.box, to, 0, *from, found.start);
  });
}

StatusOr<Kernel> gpu_slice_grad(const KernelSetup& op) {
  return Kernel([&device = device_of(op), args = BoundsArgs(op), grad = op.input("Out@GRAD"),
                 dx = op.output("Input@GRAD")](const KernelContext& ctx) -> Status {
    if (!dx) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, grad, "Out@GRAD"));
    Tensor* const to = ctx.out_value(dx).get_if<Tensor>();
    if (to == nullptr || !to->initialized() || from->dtype() != to->dtype() ||
        from->raw() == to->raw())
      return refuse("the gradient of {}", describe(*from));
    MILLRACE_ASSIGN_OR_RETURN(const SliceSettings s, args.read(ctx));
    MILLRACE_ASSIGN_OR_RETURN(const Cuts cuts, cuts_of(s, to->dims()));
    MILLRACE_ASSIGN_OR_RETURN(const Selected found,
                              select(cuts, to->dims(), *from, /*part_first=*/false));
    MILLRACE_RETURN_IF_ERROR(found.box.walk().status());
    if (from->numel() != to->numel()) MILLRACE_RETURN_IF_ERROR(clear_elements(device, *to));
    return move_elements(device, found.box, *to, found.start, *from, 0);
  });
}

// Elements in reverse order along some dims; the gradient does the same.
StatusOr<Kernel> gpu_reverse(const KernelSetup& op) {
  return Kernel([&device = device_of(op), axes = op.attr<std::vector<int64_t>>("axis"),
                 x = op.input("X"), out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    Tensor* const to = ctx.out_value(out).get_if<Tensor>();
    if (to == nullptr || to->dtype() != from->dtype() || to->dims() != from->dims() ||
        from->raw() == to->raw() || from->numel() == 0)
      return refuse("X {}", describe(*from));
    const auto strides = row_major_strides(from->dims());
    auto turned = strides;
    int64_t start = 0;
    for (const int64_t axis : axes) {
      const int64_t at = axis < 0 ? axis + static_cast<int64_t>(from->rank()) : axis;
      if (at < 0 || at >= static_cast<int64_t>(from->rank())) return refuse("axis {}", axis);
      const auto dim = static_cast<size_t>(at);
      if (turned[dim] < 0) continue;
      turned[dim] = -strides[dim];
      start += (from->dims()[dim] - 1) * strides[dim];
    }
    Box<2> box;
    for (size_t i = 0; i < from->rank(); ++i) box.push(from->dims()[i], {strides[i], turned[i]});
    return move_elements(device, box, *to, 0, *from, start);
  });
}

}  // namespace

void add_slice(KernelRegistry& registry) {
  registry.add("slice", gpu_slice);
  registry.add("strided_slice", gpu_slice);
  registry.add("reverse", gpu_reverse);
  registry.add("flip", gpu_reverse);
  registry.add("slice_grad", gpu_slice_grad);
  registry.add("strided_slice_grad", gpu_slice_grad);
}

}  // namespace millrace::gpu
