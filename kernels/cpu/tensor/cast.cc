#include "kernels/cpu/convert.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/tensor/tensor.h"
#include "kernels/kernel.h"

namespace millrace::kernels {
namespace {

StatusOr<Kernel> cast(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const DType dtype = op.dtype_attr("out_dtype");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (const auto* const rows = ctx.in_value(x).get_if<SelectedRows>()) {
      auto& to = ctx.out_value(out).as<SelectedRows>();
      Tensor value;
      MILLRACE_RETURN_IF_ERROR(value.resize(dtype, rows->value.dims()));
      MILLRACE_RETURN_IF_ERROR(
          convert(rows->value.dtype(), rows->value.raw(), dtype, value.raw(), value.numel()));
      to.rows = rows->rows;
      to.height = rows->height;
      to.value = std::move(value);
      return Ok();
    }
    const Tensor& from = ctx.in(x);
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(size_output(to, dtype, from.dims()));
    if (from.dtype() == dtype) {
      copy_bytes(ctx.device(), to.raw(), from.raw(), from.bytes());
      return Ok();
    }
    Status status;
    const int64_t in_size = dtype_size(from.dtype());
    const int64_t out_size = dtype_size(dtype);
    ctx.device().parallel_for(from.numel(), 65536, [&](int64_t begin, int64_t end) {
      Status part = convert(from.dtype(), from.raw() + begin * in_size, dtype,
                            to.raw() + begin * out_size, end - begin);
      // every part fails for the same reason
      if (begin == 0) status = std::move(part);
    });
    return status;
  });
}

}  // namespace

void add_cast(KernelRegistry& registry) {
  registry.add("cast", cast);
}

}  // namespace millrace::kernels
