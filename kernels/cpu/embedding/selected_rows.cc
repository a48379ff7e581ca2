#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "kernels/cpu/int_list.h"
#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

Status take_merged(const SelectedRows& from, const RowMerger& merged, SelectedRows& to) {
  Dims dims(from.value.dims().begin(), from.value.dims().end());
  dims[0] = static_cast<int64_t>(merged.rows().size());
  Tensor value;  // the output may be the same value as the input, which is still needed
  MILLRACE_RETURN_IF_ERROR(value.resize(from.value.dtype(), dims));
  const auto rows = merged.rows();
  std::vector<size_t> order(rows.size());  // ascending, as in the original
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rows[a] < rows[b]; });
  MILLRACE_RETURN_IF_ERROR(dispatch<FloatTypes>(value.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    T* target = value.data<T>();
    for (const size_t i : order)
      target = std::copy_n(merged.values<T>() + static_cast<int64_t>(i) * merged.width(),
                           merged.width(), target);
    return Ok();
  }));
  std::vector<int64_t> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end());
  to.height = from.height;
  to.rows.assign(sorted.begin(), sorted.end());
  to.value = std::move(value);
  return Ok();
}

StatusOr<const SelectedRows*> rows_of_input(const KernelContext& ctx, ArgIndex x) {
  const auto* const rows = ctx.in_value(x).get_if<SelectedRows>();
  if (rows != nullptr) return rows;
  return ctx.error("X must be selected rows, found {}", describe(ctx.in_value(x)));
}

StatusOr<Kernel> merge_selected_rows(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const auto merger = std::make_shared<RowMerger>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const SelectedRows* const from, rows_of_input(ctx, x));
    MILLRACE_RETURN_IF_ERROR(merger->merge(*from));
    return take_merged(*from, *merger, ctx.out_value(out).as<SelectedRows>());
  });
}

StatusOr<Kernel> get_tensor(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const SelectedRows* const from, rows_of_input(ctx, x));
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(size_output(to, from->value.dtype(), from->value.dims()));
    copy_bytes(ctx.device(), to.raw(), from->value.raw(), to.bytes());
    return Ok();
  });
}

}  // namespace

void add_embedding_selected_rows(KernelRegistry& registry) {
  registry.add("merge_selected_rows", merge_selected_rows);
  registry.add("get_tensor_from_selected_rows", get_tensor);
}

}  // namespace millrace::kernels
