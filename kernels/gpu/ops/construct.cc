#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

// Ops that create or copy values: constants, copies, and the same elements with other dims.
namespace millrace::gpu {
namespace {

StatusOr<Kernel> gpu_fill_constant(const KernelSetup& op) {
  for (const char* const slot : {"ValueTensor", "ShapeTensor", "ShapeTensorList"}) {
    if (op.inputs(slot).count > 0) return refuse("fill_constant with {} runs on the CPU", slot);
  }
  if (op.attr<bool>("force_cpu")) return refuse("attribute 'force_cpu' is set");
  const auto text = op.attr<std::string>("str_value");
  double value = op.attr<float>("value");
  if (!text.empty() && llvm::StringRef(text).getAsDouble(value))
    return refuse("attribute 'str_value' is '{}'", text);
  return Kernel(
      [&device = device_of(op), value, out = op.output("Out")](const KernelContext& ctx) -> Status {
        Tensor& to = ctx.out(out);
        MILLRACE_RETURN_IF_ERROR(all_floats({&to}));
        return each(device, Fill{floats(to), static_cast<float>(value)}, to.numel());
      });
}

StatusOr<Kernel> copy(const KernelSetup& op, const char* from_slot, const char* to_slot) {
  return Kernel([&device = device_of(op), from = op.input(from_slot),
                 to = op.output(to_slot)](const KernelContext& ctx) -> Status {
    const Tensor* const x = ctx.find_in(from);
    Tensor* const y = ctx.find_out(to);
    if (x == nullptr || y == nullptr) return refuse("an argument is missing");
    if (x->dtype() != y->dtype() || x->numel() != y->numel())
      return refuse("{} becomes {}", describe(*x), describe(*y));
    if (x->raw() == y->raw() || x->bytes() == 0) return Ok();
    return device.copy(x->raw(), y->raw(), x->bytes());
  });
}

StatusOr<Kernel> gpu_assign(const KernelSetup& op) {
  return copy(op, "X", "Out");
}

// Shape inference on the CPU reads dims that are given as tensors.
StatusOr<Kernel> gpu_reshape(const KernelSetup& op) {
  for (const char* const slot : {"Shape", "ShapeTensor"}) {
    if (op.inputs(slot).count > 0) return refuse("dims given by {} are read on the CPU", slot);
  }
  return copy(op, "X", "Out");
}
StatusOr<Kernel> reshape_grad(const KernelSetup& op) {
  return copy(op, "Out@GRAD", "X@GRAD");
}

}  // namespace

void add_construct(KernelRegistry& registry) {
  registry.add("fill_constant", gpu_fill_constant);
  registry.add("assign", gpu_assign);
  for (const char* const type : {"reshape", "reshape2", "flatten", "flatten2",
                                 "flatten_contiguous_range", "squeeze2", "unsqueeze2"})
    registry.add(type, gpu_reshape);
  for (const char* const type :
       {"reshape_grad", "reshape2_grad", "flatten_grad", "flatten2_grad",
        "flatten_contiguous_range_grad", "squeeze2_grad", "unsqueeze2_grad"})
    registry.add(type, reshape_grad);
}

}  // namespace millrace::gpu
