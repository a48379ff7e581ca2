#include <cmath>

#include "kernels/gpu/functors/moves.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/resident.h"
#include "kernels/registry.h"

// Ops that create or copy values: constants, copies, and the same elements with other dims.
namespace millrace::gpu {
namespace {

// Sets all elements. Integers are cut off. Errors: rejects other types, and numbers that do not
// fit.
Status fill_elements(Device& device, Tensor& to, double value) {
  const bool is_small = std::abs(value) <= 0x1p31 - 1;
  switch (to.dtype()) {
    case DType::kFloat32:
      return each(device, Fill{floats(to), static_cast<float>(value)}, to.numel());
    case DType::kInt32:
      if (!is_small) break;
      return each(device,
                  Set<uint32_t>{reinterpret_cast<uint32_t*>(to.raw()),
                                static_cast<uint32_t>(static_cast<int32_t>(value))},
                  to.numel());
    case DType::kInt64:
      if (!is_small) break;
      return each(device,
                  Set<uint64_t>{reinterpret_cast<uint64_t*>(to.raw()),
                                static_cast<uint64_t>(static_cast<int64_t>(value))},
                  to.numel());
    case DType::kBool:
      return each(device,
                  Set<uint8_t>{reinterpret_cast<uint8_t*>(to.raw()),
                               static_cast<uint8_t>(value != 0 ? 1 : 0)},
                  to.numel());
    default:
      break;
  }
  return refuse("the GPU kernel does not fill {} with {}", describe(to), value);
}

StatusOr<Kernel> gpu_fill_constant(const KernelSetup& op) {
  for (const char* const slot : {"ValueTensor", "ShapeTensor", "ShapeTensorList"}) {
    if (op.inputs(slot).count > 0) return refuse("fill_constant with {} runs on the CPU", slot);
  }
  if (op.def().find_attr("force_cpu") != nullptr && op.attr<bool>("force_cpu"))
    return refuse("attribute 'force_cpu' is set");
  const auto text = op.attr<std::string>("str_value");
  double value = op.attr<float>("value");
  if (!text.empty() && llvm::StringRef(text).getAsDouble(value))
    return refuse("attribute 'str_value' is '{}'", text);
  return Kernel(
      [&device = device_of(op), value, out = op.output("Out")](const KernelContext& ctx) -> Status {
        Tensor& to = ctx.out(out);
        if (resident(to) == nullptr) return refuse("dims are not known before the op runs");
        return fill_elements(device, to, value);
      });
}

StatusOr<Kernel> fill_like(const KernelSetup& op, double value) {
  return Kernel([&device = device_of(op), value, x = op.input("X"),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    Tensor& to = ctx.out(out);
    if (resident(to) == nullptr || to.dims() != from->dims())
      return refuse("{} becomes {}", describe(*from), describe(to));
    // the CPU kernel reports numbers that do not fit
    if (to.dtype() == DType::kFloat32 && std::isfinite(value) &&
        !std::isfinite(static_cast<float>(value)))
      return refuse("the number is {}", value);
    return fill_elements(device, to, value);
  });
}
StatusOr<Kernel> gpu_fill_any_like(const KernelSetup& op) {
  return fill_like(op, op.attr<float>("value"));
}
StatusOr<Kernel> gpu_fill_zeros_like(const KernelSetup& op) {
  return fill_like(op, 0);
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
    MILLRACE_RETURN_IF_ERROR(device.copy(x->raw(), y->raw(), x->bytes()));
    // ids keep their copy in process memory
    const ResidentLayout* const from_layout = resident(*x);
    const ResidentLayout* const to_layout = resident(*y);
    if (from_layout != nullptr && to_layout != nullptr)
      to_layout->set_host(from_layout->shared_host());
    return Ok();
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
  registry.add("fill_constant_batch_size_like", gpu_fill_constant);
  registry.add("fill_any_like", gpu_fill_any_like);
  registry.add("fill_zeros_like", gpu_fill_zeros_like);
  registry.add("assign", gpu_assign);
  registry.add("memcpy", gpu_assign);  // flags that others look at on the processor
  for (const char* const type :
       {"reshape", "reshape2", "flatten", "flatten2", "flatten_contiguous_range", "squeeze",
        "unsqueeze", "squeeze2", "unsqueeze2"})
    registry.add(type, gpu_reshape);
  for (const char* const type : {"reshape_grad", "reshape2_grad", "flatten_grad", "flatten2_grad",
                                 "flatten_contiguous_range_grad", "squeeze_grad", "unsqueeze_grad",
                                 "squeeze2_grad", "unsqueeze2_grad"})
    registry.add(type, reshape_grad);
}

}  // namespace millrace::gpu
