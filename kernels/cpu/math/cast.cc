#include "kernels/cpu/convert.h"
#include "kernels/cpu/nest.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

Status cast_tensor(CpuDevice& device, const Tensor& x, Tensor& out) {
  const auto from = static_cast<int64_t>(dtype_size(x.dtype()));
  const auto to = static_cast<int64_t>(dtype_size(out.dtype()));
  // Reports unknown types; the conversion of chunks cannot fail after that.
  MILLRACE_RETURN_IF_ERROR(convert(x.dtype(), nullptr, out.dtype(), nullptr, 0));
  device.parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    (void)convert(x.dtype(), x.raw() + begin * from, out.dtype(), out.raw() + begin * to,
                  end - begin);
  });
  return Ok();
}

StatusOr<Kernel> cast(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex out_arg = op.output("Out");
  const DType dtype = op.dtype_attr("out_dtype");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (const Tensor* const x = ctx.find_in(x_arg))
      return cast_tensor(ctx.device(), *x, ctx.out(out_arg));
    const auto* const rows = ctx.in_value(x_arg).get_if<SelectedRows>();
    if (rows == nullptr) return ctx.error("X must be a dense tensor or selected rows");
    SelectedRows out{rows->rows, rows->height, {}};
    MILLRACE_RETURN_IF_ERROR(out.value.resize(dtype, rows->value.dims()));
    MILLRACE_RETURN_IF_ERROR(cast_tensor(ctx.device(), rows->value, out.value));
    ctx.out_value(out_arg).as<SelectedRows>() = std::move(out);
    return Ok();
  });
}

}  // namespace

void add_math_cast(KernelRegistry& registry) {
  registry.add("cast", cast);
}

}  // namespace millrace::kernels
