#include "kernels/cpu/gradient.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/tensor/cut.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

// crop and crop_tensor: the box with the given size and offsets.
namespace millrace::kernels {
namespace {

using Cuts = llvm::SmallVector<Cut, 6>;

struct CropArgs {
  explicit CropArgs(const KernelSetup& op) {
    const bool newer = op.def().find_input("OffsetsTensor") != nullptr;
    offsets = IntList(op, "offsets", "Offsets", newer ? "OffsetsTensor" : "");
    y = op.input("Y");
    shape = newer ? IntList(op, "shape", "Shape", "ShapeTensor") : IntList(op, "shape");
  }
  [[nodiscard]] bool dynamic() const { return shape.dynamic() || offsets.dynamic(); }

  StatusOr<Ints> start(const KernelContext& ctx, size_t rank) const {
    MILLRACE_ASSIGN_OR_RETURN(Ints at, offsets.read(ctx));
    if (at.empty()) at.assign(rank, 0);
    if (at.size() == rank) return at;
    return ctx.error("there are {} offsets for {} dims", at.size(), rank);
  }

  IntList offsets;
  IntList shape;
  ArgIndex y;
};

// Errors: the box extends past the tensor.
StatusOr<Cuts> cuts_of(const KernelContext& ctx, llvm::ArrayRef<int64_t> dims, const Ints& start,
                       llvm::ArrayRef<int64_t> size) {
  Cuts cuts;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t count = size[i] == -1 ? dims[i] - start[i] : size[i];
    if (start[i] < 0 || count < 0 || start[i] > dims[i] || count > dims[i] - start[i]) {
      return ctx.error("the box of {} elements starting at {} exceeds dim {} of {}", count,
                       start[i], i, ops::dims_text(dims));
    }
    cuts.push_back({start[i], count, 1});
  }
  return cuts;
}

StatusOr<Kernel> crop(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const CropArgs args(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    Tensor& to = ctx.out(out);
    MILLRACE_ASSIGN_OR_RETURN(const Ints start, args.start(ctx, from.rank()));
    MILLRACE_ASSIGN_OR_RETURN(Ints size, args.shape.read(ctx));
    if (args.y) size.assign(ctx.in(args.y).dims().begin(), ctx.in(args.y).dims().end());
    if (size.empty()) size.assign(from.rank(), -1);
    if (size.size() != from.rank())
      return ctx.error("the shape {} must have the rank of X {}", ops::dims_text(size),
                       describe(from));
    MILLRACE_ASSIGN_OR_RETURN(const Cuts cuts, cuts_of(ctx, from.dims(), start, size));
    const CutBox cut(from.dims(), cuts);
    MILLRACE_RETURN_IF_ERROR(size_output(to, from.dtype(), cut.box.dims));
    const int64_t bytes = dtype_size(from.dtype());
    copy_strided(ctx.device(), bytes, cut.box, to.raw(), from.raw() + cut.offset * bytes);
    return Ok();
  });
}

StatusOr<Kernel> crop_grad(const KernelSetup& op) {
  const GradientArgs gradient(op);
  const CropArgs args(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const GradientTensors g = gradient.find(ctx, StartsAs::kZeros);
    if (!g) return Ok();
    if (g.from->rank() != g.to->rank() || g.from->dtype() != g.to->dtype())
      return ctx.error("Out@GRAD {} is not a box of X@GRAD {}", describe(*g.from), describe(*g.to));
    MILLRACE_ASSIGN_OR_RETURN(const Ints start, args.start(ctx, g.to->rank()));
    MILLRACE_ASSIGN_OR_RETURN(const Cuts cuts, cuts_of(ctx, g.to->dims(), start, g.from->dims()));
    const CutBox cut(g.to->dims(), cuts);
    const int64_t bytes = dtype_size(g.to->dtype());
    copy_strided(ctx.device(), bytes, cut.reversed(), g.to->raw() + cut.offset * bytes,
                 g.from->raw());
    return Ok();
  });
}

}  // namespace

void add_tensor_crop(KernelRegistry& registry) {
  registry.add("crop", crop);
  registry.add("crop_tensor", crop);
  registry.add("crop_grad", crop_grad);
  registry.add("crop_tensor_grad", crop_grad);
}

}  // namespace millrace::kernels
