#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "framework/block.h"
#include "kernels/cpu/embedding/ids.h"
#include "kernels/cpu/embedding/remote_rows.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/tensor/index_add.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

// Rows of a table by id, and the gradient of the table: dense, or as the rows that were used.
namespace millrace::kernels {
namespace lookup_kernels {
namespace {

// Copies rows; the table does not fit the caches, so the next rows are prefetched.
template <typename I>
void copy_rows(CpuDevice& device, const std::byte* table, int64_t row_bytes, const I* ids,
               int64_t count, int64_t padding, std::byte* out) {
  const auto bytes = static_cast<size_t>(row_bytes);
  const int64_t grain = std::max<int64_t>(1, 131072 / std::max<int64_t>(row_bytes, 1));
  device.parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kAhead = 8;
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end && ids[i + kAhead] >= 0)
        __builtin_prefetch(table + static_cast<int64_t>(ids[i + kAhead]) * row_bytes);
      std::byte* const to = out + i * row_bytes;
      if (padding >= 0 && static_cast<int64_t>(ids[i]) == padding) {
        std::memset(to, 0, bytes);
      } else {
        std::memcpy(to, table + static_cast<int64_t>(ids[i]) * row_bytes, bytes);
      }
    }
  });
}

// Rows of a table that is stored as selected rows: ids are row numbers of the whole table.
Status copy_selected(const KernelContext& ctx, const SelectedRows& table, const Tensor& ids,
                     int64_t padding, Tensor& out) {
  std::unordered_map<int64_t, int64_t> places;
  for (size_t i = 0; i < table.rows.size(); ++i)
    places.emplace(table.rows[i], static_cast<int64_t>(i));
  Ints wanted;
  MILLRACE_RETURN_IF_ERROR(append_ints(ids, "Ids", wanted));
  const auto row = static_cast<size_t>(row_width(table.value) * dtype_size(table.value.dtype()));
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::byte* const to = out.raw() + i * row;
    if (padding >= 0 && wanted[i] == padding) {
      std::memset(to, 0, row);
      continue;
    }
    const auto found = places.find(wanted[i]);
    if (found == places.end())
      return ctx.error("Ids has {} at {}, which is not a row of W", wanted[i], i);
    std::memcpy(to, table.value.raw() + static_cast<size_t>(found->second) * row, row);
  }
  return Ok();
}

StatusOr<Kernel> lookup(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(check_rows_are_here(op, "W"));
  const ArgIndex w = op.input("W");
  const ArgIndex ids_arg = op.input("Ids");
  const ArgIndex out = op.output("Out");
  const auto padding = op.attr<int64_t>("padding_idx");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& ids = ctx.in(ids_arg);
    Tensor& to = ctx.out(out);
    if (const auto* const rows = ctx.in_value(w).get_if<SelectedRows>()) {
      const int64_t width = row_width(rows->value);
      if (!to.initialized() || to.numel() != ids.numel() * width)
        return ctx.error("Out {} must have rows of {} elements for the ids {}", describe(to), width,
                         describe(ids));
      return copy_selected(ctx, *rows, ids, padding, to);
    }
    const Tensor& table = ctx.in(w);
    if (table.rank() != 2) return ctx.error("W must be a matrix, found {}", describe(table));
    return with_index(ids, "Ids", [&](const auto* at) -> Status {
      MILLRACE_RETURN_IF_ERROR(check_ids(at, ids.numel(), table.dims()[0], padding));
      copy_rows(ctx.device(), table.raw(), table.dims()[1] * dtype_size(table.dtype()), at,
                ids.numel(), padding, to.raw());
      return Ok();
    });
  });
}

// Output of the gradient and what it is computed from.
struct LookupGradArgs {
  ArgIndex w;
  ArgIndex ids;
  ArgIndex grad;
  ArgIndex w_grad;
  int64_t padding = -1;
  Dims declared;  // dims of W in the program
};

// Height and width of the table, which may be selected rows on a pserver. A trainer whose servers
// hold the table has only its declaration (fake_init).
StatusOr<std::pair<int64_t, int64_t>> table_dims(const KernelContext& ctx,
                                                 const LookupGradArgs& args) {
  if (const auto* const rows = ctx.in_value(args.w).get_if<SelectedRows>())
    return std::pair(rows->height, row_width(rows->value));
  if (ctx.find_in(args.w) == nullptr && args.declared.size() == 2 && args.declared[0] > 0 &&
      args.declared[1] > 0)
    return std::pair(args.declared[0], args.declared[1]);
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const table, needed(ctx, args.w, "W"));
  if (table->rank() != 2) return ctx.error("W must be a matrix, found {}", describe(*table));
  return std::pair(table->dims()[0], table->dims()[1]);
}

Status sparse_grad(const KernelContext& ctx, const LookupGradArgs& args, const Tensor& ids,
                   const Tensor& grad, int64_t height, int64_t width) {
  auto& to = ctx.out_value(args.w_grad).as<SelectedRows>();
  const int64_t count = ids.numel();
  to.height = height;
  to.rows.resize(static_cast<size_t>(count));
  Status taken = with_index(ids, "Ids", [&](const auto* at) -> Status {
    std::copy(at, at + count, to.rows.begin());
    return check_ids(at, count, height, args.padding);
  });
  if (!taken.ok()) return taken;
  MILLRACE_RETURN_IF_ERROR(size_output(to.value, grad.dtype(), {count, width}));
  copy_bytes(ctx.device(), to.value.raw(), grad.raw(), grad.bytes());
  return Ok();
}

Status dense_grad(const KernelContext& ctx, const LookupGradArgs& args, const Tensor& ids,
                  const Tensor& grad, int64_t height, int64_t width) {
  Tensor& to = ctx.out(args.w_grad);
  MILLRACE_RETURN_IF_ERROR(size_output(to, grad.dtype(), {height, width}));
  fill_zero(ctx.device(), to);
  return with_index(ids, "Ids", [&](const auto* at) -> Status {
    MILLRACE_RETURN_IF_ERROR(check_ids(at, ids.numel(), height, args.padding));
    return dispatch<AllFloatTypes>(grad.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      if (args.padding < 0) {
        add_rows(to.data<T>(), grad.data<T>(), at, ids.numel(), width);
        return Ok();
      }
      for (int64_t i = 0; i < ids.numel(); ++i) {
        if (static_cast<int64_t>(at[i]) != args.padding)
          add_rows(to.data<T>(), grad.data<T>() + i * width, at + i, 1, width);
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> lookup_grad(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(check_rows_are_here(op, "W"));
  LookupGradArgs args{op.input("W"),
                      op.input("Ids"),
                      op.input("Out@GRAD"),
                      op.output("W@GRAD"),
                      op.attr<int64_t>("padding_idx"),
                      {}};
  if (const Var* const w = op.op().block().find_var_recursive(op.op().first_input("W")))
    args.declared.assign(w->dims().begin(), w->dims().end());
  const bool sparse = op.attr<bool>("is_sparse");  // independent of is_distributed
  if (!args.w) return op.error("W is missing, which determines the shape of the gradient");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!args.w_grad) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const ids, needed(ctx, args.ids, "Ids"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const grad, needed(ctx, args.grad, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const auto dims, table_dims(ctx, args));
    const auto [height, width] = dims;
    if (grad->numel() != ids->numel() * width)
      return ctx.error("Out@GRAD {} must have a row of {} for each of Ids {}", describe(*grad),
                       width, describe(*ids));
    return sparse ? sparse_grad(ctx, args, *ids, *grad, height, width)
                  : dense_grad(ctx, args, *ids, *grad, height, width);
  });
}

}  // namespace
}  // namespace lookup_kernels

void add_embedding_lookup(KernelRegistry& registry) {
  using namespace lookup_kernels;
  registry.add("lookup_table", lookup);
  registry.add("lookup_table_v2", lookup);
  registry.add("lookup_table_grad", lookup_grad);
  registry.add("lookup_table_v2_grad", lookup_grad);
}

}  // namespace millrace::kernels
