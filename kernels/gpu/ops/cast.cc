#include "kernels/gpu/functors/halves.h"
#include "kernels/gpu/functors/values.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

// Conversions of elements.
namespace millrace::gpu {
namespace {

// Calls body with a value of the type. Errors: rejects other types.
template <typename Body>
Status with_cast_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kFloat32:
      return body(float{});
    case DType::kFloat64:
      return body(double{});
    case DType::kInt32:
      return body(int32_t{});
    case DType::kInt64:
      return body(int64_t{});
    case DType::kUint8:
      return body(uint8_t{});
    case DType::kBool:
      return body(bool{});
    case DType::kFloat16:
      return body(Half{});
    case DType::kBfloat16:
      return body(Brain{});
    default:
      return refuse("the GPU kernel does not convert {}", dtype_name(dtype));
  }
}

StatusOr<Kernel> gpu_cast(const KernelSetup& op) {
  return one_operand(op, [](Device& device, const Tensor& x, Tensor& y) -> Status {
    if (x.numel() != y.numel()) return refuse("{} becomes {}", describe(x), describe(y));
    return with_cast_type(x.dtype(), [&](auto a) {
      return with_cast_type(y.dtype(), [&](auto b) {
        using Convert = gpu::Convert<decltype(a), decltype(b)>;
        return each(device,
                    Convert{reinterpret_cast<const decltype(a)*>(x.raw()),
                            reinterpret_cast<decltype(b)*>(y.raw())},
                    y.numel());
      });
    });
  });
}

template <typename Id>
Status run_one_hot(Device& device, const Tensor& classes, Tensor& to, int64_t depth) {
  return each(device,
              OneHot<Id>{reinterpret_cast<const Id*>(classes.raw()), floats(to), Divider(depth)},
              to.numel());
}

StatusOr<Kernel> gpu_one_hot(const KernelSetup& op) {
  if (op.input("depth_tensor")) return refuse("the depth is given by a tensor");
  // the CPU kernel reports classes that are out of range
  if (!op.attr<bool>("allow_out_of_range")) return refuse("classes are checked on the CPU");
  return Kernel([&device = device_of(op), x = op.input("X"), out = op.output("Out"),
                 depth = op.attr<int64_t>("depth")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const classes, needed_here(ctx, x, "X"));
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(all_floats({&to}));
    if (depth < 1 || to.numel() != classes->numel() * depth || to.numel() >= int64_t{1} << 31)
      return refuse("{} becomes {}", describe(*classes), describe(to));
    if (classes->dtype() == DType::kInt64) return run_one_hot<int64_t>(device, *classes, to, depth);
    if (classes->dtype() == DType::kInt32) return run_one_hot<int32_t>(device, *classes, to, depth);
    return refuse("classes are {}", describe(*classes));
  });
}

}  // namespace

void add_cast(KernelRegistry& registry) {
  registry.add("cast", gpu_cast);
  registry.add("one_hot", gpu_one_hot);
  registry.add("one_hot_v2", gpu_one_hot);
}

}  // namespace millrace::gpu
