#include <algorithm>

#include "kernels/cpu/int_list.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

StatusOr<Kernel> dequantize_log(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex dictionary = op.input("Dict");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    const Tensor& values = ctx.in(dictionary);
    if (from.dtype() != DType::kInt8 || values.dtype() != DType::kFloat32 || values.numel() != 128)
      return ctx.error("X must be int8 and Dict f32 [128], found {} and {}", describe(from),
                       describe(values));
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(size_output(to, DType::kFloat32, from.dims()));
    const float* const value = values.data<float>();
    for (int64_t i = 0; i < from.numel(); ++i) {
      const int8_t code = from.data<int8_t>()[i];
      to.data<float>()[i] = code < 0 ? -value[code + 128] : value[code];
    }
    return Ok();
  });
}

StatusOr<Kernel> lookup_table_dequant(const KernelSetup& op) {
  const ArgIndex table_arg = op.input("W");
  const ArgIndex ids_arg = op.input("Ids");
  const ArgIndex out = op.output("Out");
  const auto padding = op.attr<int64_t>("padding_idx");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& table = ctx.in(table_arg);
    const Tensor& ids = ctx.in(ids_arg);
    if (table.dtype() != DType::kFloat32 || table.rank() != 2 || table.dim(1) < 2 ||
        ids.dtype() != DType::kInt64 || ids.rank() == 0 || ids.dim(-1) != 1)
      return ctx.error("W must be f32 [rows, 2 and more] and Ids int64 [.., 1], found {} and {}",
                       describe(table), describe(ids));
    const int64_t columns = table.dim(1);
    const int64_t width = (columns - 2) * 4;
    Dims dims(ids.dims().begin(), ids.dims().end());
    dims.back() = width;
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(size_output(to, DType::kFloat32, dims));
    for (int64_t i = 0; i < ids.numel(); ++i) {
      const int64_t id = ids.data<int64_t>()[i];
      float* const row = to.data<float>() + i * width;
      if (padding != -1 && id == padding) {
        std::fill_n(row, width, 0.0F);
        continue;
      }
      if (id < 0 || id >= table.dim(0))
        return ctx.error("Ids has {} at {}, expected a number in [0, {})", id, i, table.dim(0));
      const float* const stored = table.data<float>() + id * columns;
      const float least = stored[0];
      const float step = (stored[1] - least) / 256;
      const auto* const bytes = reinterpret_cast<const unsigned char*>(stored + 2);
      for (int64_t k = 0; k < width; ++k) row[k] = step * static_cast<float>(bytes[k]) + least;
    }
    return Ok();
  });
}

}  // namespace

void add_quant_dictionary(KernelRegistry& registry) {
  registry.add("dequantize_log", dequantize_log);
  registry.add("lookup_table_dequant", lookup_table_dequant);
}

}  // namespace millrace::kernels
