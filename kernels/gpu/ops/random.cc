#include <algorithm>
#include <cmath>

#include "kernels/cpu/random/bits.h"
#include "kernels/cpu/random/dropout_args.h"
#include "kernels/gpu/functors/values.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/resident.h"
#include "kernels/registry.h"

// Dropout and uniform random numbers: a seed makes the same numbers as on the CPU.
namespace millrace::gpu {
namespace {

struct GpuDropout : kernels::DropoutArgs {
  explicit GpuDropout(const KernelSetup& op) : DropoutArgs(op), device(&device_of(op)) {}
  [[nodiscard]] Status scale(const Tensor& from, Tensor& to) const {
    return each(*device, Scale{floats(from), floats(to), test_scale(), 0.0F, true}, to.numel());
  }
  Device* device;
};

StatusOr<Kernel> gpu_dropout(const KernelSetup& op) {
  if (op.input("Seed")) return refuse("the seed is given by a tensor");
  return Kernel([args = GpuDropout(op), x = op.input("X"), out = op.output("Out"),
                 mask = op.output("Mask"), fixed = op.attr<bool>("fix_seed"),
                 seed = op.attr<int64_t>("seed")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, out, *from));
    Tensor* const kept = ctx.find_out(mask);
    if (to == nullptr) return refuse("Out is missing");
    MILLRACE_RETURN_IF_ERROR(all_floats({from}));
    if (args.is_test) return args.scale(*from, *to);
    if (kept != nullptr && (kept->dtype() != DType::kUint8 || kept->numel() != from->numel()))
      return refuse("Mask {}", describe(*kept));
    // after all checks: the CPU kernel would draw another seed
    const uint64_t key =
        fixed ? kernels::random_bits(1, static_cast<uint64_t>(seed)) : ctx.device().next_seed();
    const auto below = static_cast<uint32_t>(
        std::min(static_cast<double>(args.probability) * 0x1p32, 4294967295.0));
    return each(*args.device,
                Drop{floats(from), floats(to),
                     kept == nullptr ? nullptr : reinterpret_cast<uint8_t*>(kept->raw()), key,
                     below, args.probability >= 1, args.kept_scale()},
                from->numel());
  });
}

StatusOr<Kernel> gpu_dropout_grad(const KernelSetup& op) {
  return Kernel([args = GpuDropout(op), mask = op.input("Mask"), dout = op.input("Out@GRAD"),
                 dx = op.output("X@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *d));
    if (to == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(all_floats({d}));
    if (args.is_test) return args.scale(*d, *to);
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const kept, needed_here(ctx, mask, "Mask"));
    if (kept->dtype() != DType::kUint8 || kept->numel() != d->numel())
      return refuse("Mask {}", describe(*kept));
    return each(*args.device,
                DropGradient{floats(d), reinterpret_cast<const uint8_t*>(kept->raw()), floats(to),
                             args.kept_scale()},
                to->numel());
  });
}

StatusOr<Kernel> gpu_uniform(const KernelSetup& op) {
  for (const char* const slot : {"ShapeTensor", "ShapeTensorList"}) {
    if (op.inputs(slot).count > 0) return refuse("dims given by {} are read on the CPU", slot);
  }
  const auto low = op.attr<float>("min");
  const auto high = op.attr<float>("max");
  if (low > high || op.attr<int64_t>("diag_num") != 0) return refuse("bounds or a diagonal");
  return Kernel([&device = device_of(op), out = op.output("Out"), low, high,
                 seed = op.attr<int64_t>("seed")](const KernelContext& ctx) -> Status {
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(all_floats({&to}));
    if (resident(to) == nullptr) return refuse("dims are not known before the op runs");
    const uint64_t key = kernels::stream_key(ctx.device(), seed);
    const float last = high > low ? std::nextafter(high, low) : high;
    return each(device, DrawUniform{floats(to), key, low, high - low, last}, to.numel());
  });
}

}  // namespace

void add_random(KernelRegistry& registry) {
  registry.add("dropout", gpu_dropout);
  registry.add("dropout_grad", gpu_dropout_grad);
  registry.add("uniform_random", gpu_uniform);
  registry.add("uniform_random_batch_size_like", gpu_uniform);
}

}  // namespace millrace::gpu
