#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cpu/int_list.h"
#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/row_position.h"
#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

// Lookups in the slice of a table that a server has, and splitting a gradient into row numbers and
// values.
namespace millrace::kernels {
namespace {

// If the table is stored as selected rows, row numbers are those of the whole table.
StatusOr<Kernel> lookup_sparse_table(const KernelSetup& op) {
  const ArgIndex table_arg = op.input("W");
  const ArgIndex ids_arg = op.input("Ids");
  const ArgIndex out_arg = op.output("Out");
  const auto padding = op.attr<int64_t>("padding_idx");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Value& table = ctx.in_value(table_arg);
    const auto* const rows = table.get_if<SelectedRows>();
    const Tensor* const values = rows_of_table(table);
    if (values == nullptr) return ctx.error("W must be a table of rows, found {}", describe(table));
    const Tensor& ids = ctx.in(ids_arg);
    if (ids.dtype() != DType::kInt64) return ctx.error("Ids must be i64, found {}", describe(ids));
    const int64_t bytes = values->dim(0) == 0 ? 0 : values->bytes() / values->dim(0);
    Tensor& out = ctx.out(out_arg);
    Dims dims(values->dims().begin(), values->dims().end());
    dims[0] = ids.numel();
    MILLRACE_RETURN_IF_ERROR(size_output(out, values->dtype(), dims));
    for (int64_t i = 0; i < ids.numel(); ++i) {
      const int64_t id = ids.data<int64_t>()[i];
      std::byte* const to = out.raw() + i * bytes;
      if (padding >= 0 && id == padding) {
        std::memset(to, 0, static_cast<size_t>(bytes));
        continue;
      }
      const int64_t row = rows != nullptr ? row_position(*rows, id) : id;
      if (row < 0 || row >= values->dim(0))
        return ctx.error("Ids has {} at {}, which is not in the table {}", id, i, describe(table));
      std::memcpy(to, values->raw() + row * bytes, static_cast<size_t>(bytes));
    }
    return Ok();
  });
}

// Ids and values of a gradient, each row once.
StatusOr<Kernel> grad_split(const KernelSetup& op) {
  const ArgIndex grad_arg = op.input("Grad");
  const ArgIndex row_arg = op.output("Row");
  const ArgIndex value_arg = op.output("Value");
  const auto merger = std::make_shared<RowMerger>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    const auto* const grad = ctx.in_value(grad_arg).get_if<SelectedRows>();
    if (grad == nullptr)
      return ctx.error("Grad must be selected rows, found {}", describe(ctx.in_value(grad_arg)));
    MILLRACE_RETURN_IF_ERROR(merger->merge(*grad));
    const auto count = static_cast<int64_t>(merger->rows().size());
    Tensor& rows = ctx.out(row_arg);
    MILLRACE_RETURN_IF_ERROR(size_output(rows, DType::kInt64, {count}));
    std::copy(merger->rows().begin(), merger->rows().end(), rows.data<int64_t>());
    Tensor& values = ctx.out(value_arg);
    MILLRACE_RETURN_IF_ERROR(size_output(values, grad->value.dtype(), {count, merger->width()}));
    return dispatch<FloatTypes>(grad->value.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      copy_bytes(ctx.device(), values.raw(),
                 reinterpret_cast<const std::byte*>(merger->template values<T>()), values.bytes());
      return Ok();
    });
  });
}

}  // namespace

void add_distributed_sparse_table(KernelRegistry& registry) {
  registry.add("lookup_sparse_table", lookup_sparse_table);
  registry.add("lookup_sparse_table_grad_split", grad_split);
}

}  // namespace millrace::kernels
