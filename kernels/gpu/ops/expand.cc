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

}  // namespace

void add_expand(KernelRegistry& registry) {
  for (const char* const type : {"expand", "expand_v2", "tile", "expand_as", "expand_as_v2"})
    registry.add(type, gpu_repeat);
  for (const char* const type :
       {"expand_grad", "expand_v2_grad", "tile_grad", "expand_as_grad", "expand_as_v2_grad"})
    registry.add(type, gpu_repeat_grad);
}

}  // namespace millrace::gpu
