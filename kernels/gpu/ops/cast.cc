#include "kernels/gpu/functors/halves.h"
#include "kernels/gpu/functors/values.h"
#include "kernels/gpu/ops/host_call.h"
#include "kernels/gpu/ops/row_groups.h"
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

// \param replaces  the classes replace the last dim of X
StatusOr<Kernel> gpu_one_hot(const KernelSetup& op, bool replaces) {
  return Kernel([&memory = memory_of(op), x = op.input("X"), out = op.output("Out"), replaces,
                 given = op.input("depth_tensor"), fixed = op.attr<int64_t>("depth"),
                 dtype = op.dtype_attr("dtype"), outside = op.attr<bool>("allow_out_of_range")](
                    const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const classes, needed_here(ctx, x, "X"));
    std::vector<int64_t> numbers{fixed};
    if (given) {
      MILLRACE_ASSIGN_OR_RETURN(const Tensor* const tensor,
                                needed_here(ctx, given, "depth_tensor"));
      MILLRACE_RETURN_IF_ERROR(read_ids(memory, *tensor, numbers));
    }
    if (numbers.size() != 1 || numbers[0] < 1 || dtype != DType::kFloat32)
      return refuse("a depth, or elements of {}", dtype_name(dtype));
    const int64_t depth = numbers[0];
    Dims dims(classes->dims().begin(), classes->dims().end());
    if (replaces && (dims.empty() || dims.back() != 1)) return refuse("X {}", describe(*classes));
    if (replaces) dims.pop_back();
    dims.push_back(depth);
    if (!outside) {
      // the CPU kernel reports them
      MILLRACE_RETURN_IF_ERROR(read_ids(memory, *classes, numbers));
      for (const int64_t number : numbers) {
        if (number < 0 || number >= depth) return refuse("X has class {} of {}", number, depth);
      }
    }
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(size_here(memory, to, dtype, dims));
    if (to.numel() >= int64_t{1} << 31) return refuse("the result is {}", describe(to));
    Device& device = memory.device();
    if (classes->dtype() == DType::kInt64) return run_one_hot<int64_t>(device, *classes, to, depth);
    if (classes->dtype() == DType::kInt32) return run_one_hot<int32_t>(device, *classes, to, depth);
    return refuse("classes are {}", describe(*classes));
  });
}
StatusOr<Kernel> gpu_one_hot_v1(const KernelSetup& op) {
  return gpu_one_hot(op, /*replaces=*/true);
}
StatusOr<Kernel> gpu_one_hot_v2(const KernelSetup& op) {
  return gpu_one_hot(op, /*replaces=*/false);
}

}  // namespace

void add_cast(KernelRegistry& registry) {
  registry.add("cast", gpu_cast);
  registry.add("one_hot", gpu_one_hot_v1);
  registry.add("one_hot_v2", gpu_one_hot_v2);
}

}  // namespace millrace::gpu
