#include "kernels/cpu/tensor/cut.h"
#include "kernels/gpu/ops/walk.h"
#include "kernels/registry.h"

// Boxes of a tensor, of elements of any type.
namespace millrace::gpu {
namespace {

// Bounds from attributes; those from tensors are read on the CPU.
struct SliceSettings {
  std::vector<int64_t> axes, starts, ends, strides;
};

StatusOr<SliceSettings> read_slice_settings(const KernelSetup& op) {
  for (const char* const slot : {"StartsTensor", "StartsTensorList", "EndsTensor", "EndsTensorList",
                                 "StridesTensor", "StridesTensorList"}) {
    if (op.inputs(slot).count > 0) return refuse("bounds given by {} are read on the CPU", slot);
  }
  for (const int64_t flag : op.attr<std::vector<int64_t>>("infer_flags")) {
    if (flag < 0) return refuse("attribute 'infer_flags' leaves dims open");
  }
  SliceSettings s{op.attr<std::vector<int64_t>>("axes"),
                  op.attr<std::vector<int64_t>>("starts"),
                  op.attr<std::vector<int64_t>>("ends"),
                  {}};
  if (op.def().find_attr("strides") != nullptr)
    s.strides = op.attr<std::vector<int64_t>>("strides");
  else
    s.strides.assign(s.axes.size(), 1);
  if (s.starts.size() != s.axes.size() || s.ends.size() != s.axes.size() ||
      s.strides.size() != s.axes.size())
    return refuse("there are other numbers of bounds than of axes");
  return s;
}

// A slice of a tensor with these dims: the box of part and whole, and where it starts there.
struct Selected {
  Box<2> box;
  int64_t start = 0;
};

// \param part_first  the part is operand 0, which is written
StatusOr<Selected> select(const SliceSettings& s, llvm::ArrayRef<int64_t> dims, const Tensor& part,
                          bool part_first) {
  llvm::SmallVector<kernels::Cut, 6> cuts;
  for (const int64_t dim : dims) cuts.push_back({0, dim, 1});
  const auto rank = static_cast<int64_t>(dims.size());
  for (size_t i = 0; i < s.axes.size(); ++i) {
    const int64_t axis = s.axes[i] < 0 ? s.axes[i] + rank : s.axes[i];
    if (axis < 0 || axis >= rank || s.strides[i] == 0) return refuse("axis {}", s.axes[i]);
    const auto at = static_cast<size_t>(axis);
    cuts[at] = kernels::cut_dim(dims[at], s.starts[i], s.ends[i], s.strides[i]);
  }
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
  MILLRACE_ASSIGN_OR_RETURN(SliceSettings settings, read_slice_settings(op));
  return Kernel([&device = device_of(op), s = std::move(settings), input = op.input("Input"),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, input, "Input"));
    Tensor& to = ctx.out(out);
    if (from->dtype() != to.dtype() || from->raw() == to.raw())
      return refuse("{} becomes {}", describe(*from), describe(to));
    MILLRACE_ASSIGN_OR_RETURN(const Selected found,
                              select(s, from->dims(), to, /*part_first=*/true));
    return move_elements(device, found.box, to, 0, *from, found.start);
  });
}

StatusOr<Kernel> gpu_slice_grad(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(SliceSettings settings, read_slice_settings(op));
  return Kernel([&device = device_of(op), s = std::move(settings), grad = op.input("Out@GRAD"),
                 dx = op.output("Input@GRAD")](const KernelContext& ctx) -> Status {
    if (!dx) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, grad, "Out@GRAD"));
    Tensor* const to = ctx.out_value(dx).get_if<Tensor>();
    if (to == nullptr || !to->initialized() || from->dtype() != to->dtype() ||
        from->raw() == to->raw())
      return refuse("the gradient of {}", describe(*from));
    MILLRACE_ASSIGN_OR_RETURN(const Selected found,
                              select(s, to->dims(), *from, /*part_first=*/false));
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
