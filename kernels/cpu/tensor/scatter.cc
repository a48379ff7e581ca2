#include <algorithm>
#include <cstring>

#include "kernels/cpu/index.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/tensor/index_add.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

namespace millrace::kernels {
namespace {

// Number of elements of a row of X; the number of rows is dim 0.
int64_t row_of(const Tensor& x) {
  return x.rank() == 0 ? 1 : ops::dims_product(x.dims().drop_front(1));
}

template <typename I>
void set_rows(Tensor& to, const Tensor& updates, const I* ids, int64_t count, size_t bytes) {
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(to.raw() + static_cast<size_t>(ids[i]) * bytes,
                updates.raw() + static_cast<size_t>(i) * bytes, bytes);
}

template <typename I>
void clear_rows(Tensor& to, const I* ids, int64_t count, size_t bytes) {
  for (int64_t i = 0; i < count; ++i)
    std::memset(to.raw() + static_cast<size_t>(ids[i]) * bytes, 0, bytes);
}

Status check_updates(const KernelContext& ctx, const Tensor& x, const Tensor& updates,
                     int64_t elements) {
  if (updates.dtype() == x.dtype() && updates.numel() == elements) return Ok();
  return ctx.error("Updates {} must have {} elements for X {}", describe(updates), elements,
                   describe(x));
}

StatusOr<Kernel> scatter_kernel(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex ids_arg = op.input("Ids");
  const ArgIndex updates_arg = op.input("Updates");
  const ArgIndex out = op.output("Out");
  const bool overwrite = op.attr<bool>("overwrite");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    const Tensor& updates = ctx.in(updates_arg);
    const Tensor& ids_tensor = ctx.in(ids_arg);
    Tensor& to = ctx.out(out);
    if (from.rank() == 0) return ctx.error("X must have at least one dim");
    const int64_t row = row_of(from);
    const int64_t count = ids_tensor.numel();
    const auto bytes = static_cast<size_t>(row * dtype_size(from.dtype()));
    MILLRACE_RETURN_IF_ERROR(check_updates(ctx, from, updates, count * row));
    copy_bytes(ctx.device(), to.raw(), from.raw(), from.bytes());
    return with_index(ids_tensor, "Ids", [&](const auto* ids) -> Status {
      MILLRACE_RETURN_IF_ERROR(check_range(ids, count, from.dims()[0], "Ids"));
      if (overwrite) {
        set_rows(to, updates, ids, count, bytes);
        return Ok();
      }
      clear_rows(to, ids, count, bytes);
      return dispatch<AddTypes>(to.dtype(), [&](auto tag) -> Status {
        using T = typename decltype(tag)::type;
        add_rows(to.data<T>(), updates.data<T>(), ids, count, row);
        return Ok();
      });
    });
  });
}

// X@GRAD = Out@GRAD.
Status copy_gradient(const KernelContext& ctx, const Tensor& from, Tensor& to) {
  if (to.dims() != from.dims() || to.dtype() != from.dtype())
    return ctx.error("Out@GRAD {} must have the shape of X {}", describe(from), describe(to));
  copy_bytes(ctx.device(), to.raw(), from.raw(), from.bytes());
  return Ok();
}

// X@GRAD is Out@GRAD with the replaced rows set to zero; Updates@GRAD has those rows.
StatusOr<Kernel> scatter_grad(const KernelSetup& op) {
  const ArgIndex ids_arg = op.input("Ids");
  const ArgIndex grad = op.input("Out@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  const ArgIndex updates_grad = op.output("Updates@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, grad, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const ids_tensor, needed(ctx, ids_arg, "Ids"));
    if (from->rank() == 0) return ctx.error("Out@GRAD must have at least one dim");
    const int64_t row = row_of(*from);
    const int64_t count = ids_tensor->numel();
    const auto bytes = static_cast<size_t>(row * dtype_size(from->dtype()));
    return with_index(*ids_tensor, "Ids", [&](const auto* ids) -> Status {
      MILLRACE_RETURN_IF_ERROR(check_range(ids, count, from->dims()[0], "Ids"));
      if (Tensor* const updates = ctx.find_out(updates_grad)) {
        MILLRACE_RETURN_IF_ERROR(check_updates(ctx, *from, *updates, count * row));
        for (int64_t i = 0; i < count; ++i)
          std::memcpy(updates->raw() + static_cast<size_t>(i) * bytes,
                      from->raw() + static_cast<size_t>(ids[i]) * bytes, bytes);
      }
      if (Tensor* const to = ctx.find_out(x_grad)) {
        MILLRACE_RETURN_IF_ERROR(copy_gradient(ctx, *from, *to));
        clear_rows(*to, ids, count, bytes);
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> scatter_nd_add(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex index = op.input("Index");
  const ArgIndex updates_arg = op.input("Updates");
  const ArgIndex out = op.output("Out");
  return Kernel([=, rows = std::vector<int64_t>()](const KernelContext& ctx) mutable -> Status {
    const Tensor& from = ctx.in(x);
    const Tensor& updates = ctx.in(updates_arg);
    Tensor& to = ctx.out(out);
    MILLRACE_ASSIGN_OR_RETURN(const int64_t row,
                              flat_rows(ctx.in(index), from.dims(), "Index", rows));
    const auto count = static_cast<int64_t>(rows.size());
    MILLRACE_RETURN_IF_ERROR(check_updates(ctx, from, updates, count * row));
    copy_bytes(ctx.device(), to.raw(), from.raw(), from.bytes());
    return dispatch<AddTypes>(to.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      add_rows(to.data<T>(), updates.data<T>(), rows.data(), count, row);
      return Ok();
    });
  });
}

StatusOr<Kernel> scatter_nd_add_grad(const KernelSetup& op) {
  const ArgIndex index = op.input("Index");
  const ArgIndex grad = op.input("Out@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  const ArgIndex updates_grad = op.output("Updates@GRAD");
  return Kernel([=, rows = std::vector<int64_t>()](const KernelContext& ctx) mutable -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, grad, "Out@GRAD"));
    if (Tensor* const updates = ctx.find_out(updates_grad)) {
      MILLRACE_ASSIGN_OR_RETURN(const Tensor* const ids, needed(ctx, index, "Index"));
      MILLRACE_ASSIGN_OR_RETURN(const int64_t row, flat_rows(*ids, from->dims(), "Index", rows));
      MILLRACE_RETURN_IF_ERROR(
          check_updates(ctx, *from, *updates, static_cast<int64_t>(rows.size()) * row));
      const auto bytes = static_cast<size_t>(row * dtype_size(from->dtype()));
      for (size_t i = 0; i < rows.size(); ++i)
        std::memcpy(updates->raw() + i * bytes, from->raw() + static_cast<size_t>(rows[i]) * bytes,
                    bytes);
    }
    Tensor* const to = ctx.find_out(x_grad);
    if (to == nullptr) return Ok();
    return copy_gradient(ctx, *from, *to);
  });
}

}  // namespace

void add_tensor_scatter(KernelRegistry& registry) {
  registry.add("scatter", scatter_kernel);
  registry.add("scatter_grad", scatter_grad);
  registry.add("scatter_nd_add", scatter_nd_add);
  registry.add("scatter_nd_add_grad", scatter_nd_add_grad);
}

}  // namespace millrace::kernels
