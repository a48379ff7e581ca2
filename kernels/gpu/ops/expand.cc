#include "kernels/gpu/ops/broadcast.h"
#include "kernels/gpu/ops/walk.h"
#include "kernels/registry.h"

// Tensors repeated along dims; the gradients add the repetitions.
namespace millrace::gpu {
namespace {

// Dims of the large tensor in pairs: repetitions, and elements of the small one.
struct RepeatBoxes {
  Box<2> all;   ///< large, small
  Box<3> kept;  ///< by element of the small one: unused, unused, position in the large one
  Box<3> gone;  ///< by repetition
  bool side_by_side = false;
};

StatusOr<RepeatBoxes> repeat_boxes(llvm::ArrayRef<int64_t> small, llvm::ArrayRef<int64_t> large) {
  if (large.size() < small.size()) return refuse("a tensor gets fewer dims");
  const auto of_small = row_major_strides(small);
  const auto of_large = row_major_strides(large);
  const size_t lead = large.size() - small.size();
  RepeatBoxes boxes;
  for (size_t i = 0; i < large.size(); ++i) {
    const int64_t dim = i < lead ? 1 : small[i - lead];
    if (dim == 0 || large[i] % dim != 0) return refuse("a dim of {} becomes {}", dim, large[i]);
    const int64_t times = large[i] / dim;
    boxes.all.push(times, {of_large[i] * dim, 0});
    if (times > 1) {
      boxes.gone.push(times, {0, 0, of_large[i] * dim});
      boxes.side_by_side = false;
    }
    if (i < lead) continue;
    boxes.all.push(dim, {of_large[i], of_small[i - lead]});
    if (dim > 1) {
      boxes.kept.push(dim, {0, 0, of_large[i]});
      boxes.side_by_side = true;
    }
  }
  return boxes;
}

StatusOr<Kernel> gpu_repeat(const KernelSetup& op) {
  for (const char* const slot : {"ExpandTimes", "expand_times_tensor", "RepeatTimes",
                                 "repeat_times_tensor", "Shape", "expand_shapes_tensor"}) {
    if (op.inputs(slot).count > 0)
      return refuse("repetitions given by {} are read on the CPU", slot);
  }
  return one_operand(op, [](Device& device, const Tensor& from, Tensor& to) -> Status {
    if (from.dtype() != to.dtype()) return refuse("{} becomes {}", describe(from), describe(to));
    MILLRACE_ASSIGN_OR_RETURN(const RepeatBoxes boxes, repeat_boxes(from.dims(), to.dims()));
    return move_elements(device, boxes.all, to, 0, from, 0);
  });
}

StatusOr<Kernel> gpu_repeat_grad(const KernelSetup& op) {
  return Kernel([&device = device_of(op), dout = op.input("Out@GRAD"),
                 dx = op.output("X@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "Out@GRAD"));
    Tensor* const to = ctx.find_out(dx);
    if (to == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(all_floats({d, to}));
    if (!to->initialized() || d->raw() == to->raw()) return refuse("X@GRAD {}", describe(*to));
    MILLRACE_ASSIGN_OR_RETURN(const RepeatBoxes boxes, repeat_boxes(to->dims(), d->dims()));
    MILLRACE_ASSIGN_OR_RETURN(const Walk<3> kept, boxes.kept.walk());
    MILLRACE_ASSIGN_OR_RETURN(const Walk<3> gone, boxes.gone.walk());
    const BinarySlopeSum<Add, false> sum{nullptr, nullptr, floats(d),         floats(to),
                                         kept,    gone,    boxes.gone.count()};
    return boxes.side_by_side ? lanes(device, sum, to->numel()) : rows(device, sum, to->numel());
  });
}

// Dims of operand k of a meshgrid, with which it is repeated over its grid.
Dims grid_operand(llvm::ArrayRef<int64_t> grid, int32_t k) {
  Dims dims(grid.size(), 1);
  if (static_cast<size_t>(k) < grid.size())
    dims[static_cast<size_t>(k)] = grid[static_cast<size_t>(k)];
  return dims;
}

// A tensor and the grid that it is repeated over.
struct GridCopy {
  const Tensor* from;
  Tensor* to;
  RepeatBoxes boxes;
};

StatusOr<GridCopy> grid_copy(const Tensor& from, Tensor& to, int32_t k) {
  const Dims small = grid_operand(to.dims(), k);
  const bool fits = from.dtype() == to.dtype() && to.numel() > 0 && from.raw() != to.raw() &&
                    static_cast<size_t>(k) < to.rank();
  if (!fits || small[static_cast<size_t>(k)] != from.numel())
    return refuse("{} becomes {}", describe(from), describe(to));
  MILLRACE_ASSIGN_OR_RETURN(RepeatBoxes boxes, repeat_boxes(small, to.dims()));
  return GridCopy{&from, &to, std::move(boxes)};
}

StatusOr<Kernel> gpu_meshgrid(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.inputs("X"),
                 grids = op.outputs("Out")](const KernelContext& ctx) -> Status {
    std::vector<GridCopy> copies;
    for (int32_t k = 0; k < grids.count; ++k) {
      if (!ctx.has_out(grids, k)) continue;
      MILLRACE_ASSIGN_OR_RETURN(GridCopy copy, grid_copy(ctx.in(x, k), ctx.out(grids, k), k));
      copies.push_back(std::move(copy));
    }
    for (const GridCopy& copy : copies)
      MILLRACE_RETURN_IF_ERROR(move_elements(device, copy.boxes.all, *copy.to, 0, *copy.from, 0));
    return Ok();
  });
}

}  // namespace

void add_expand(KernelRegistry& registry) {
  registry.add("meshgrid", gpu_meshgrid);
  for (const char* const type : {"expand", "expand_v2", "tile", "expand_as", "expand_as_v2"})
    registry.add(type, gpu_repeat);
  for (const char* const type :
       {"expand_grad", "expand_v2_grad", "tile_grad", "expand_as_grad", "expand_as_v2_grad"})
    registry.add(type, gpu_repeat_grad);
}

}  // namespace millrace::gpu
