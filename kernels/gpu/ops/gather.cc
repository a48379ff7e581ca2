#include "kernels/gpu/functors/embedding.h"
#include "kernels/gpu/ops/row_groups.h"
#include "kernels/gpu/ops/walk.h"
#include "kernels/gpu/ops/words.h"
#include "kernels/gpu/resident.h"
#include "kernels/registry.h"

// Rows of a tensor by index, along the first dim.
namespace millrace::gpu {
namespace {

struct GpuPick {
  Memory* memory;
  ArgIndex x, index;
  int64_t axis;

  // Indices in process memory. Errors: rejects numbers that the CPU kernel reports, another axis.
  [[nodiscard]] StatusOr<std::vector<int64_t>> read(const KernelContext& ctx,
                                                    const Tensor& whole) const {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const chosen, needed_here(ctx, index, "Index"));
    const auto rank = static_cast<int64_t>(whole.rank());
    if (rank == 0 || whole.numel() == 0 || (axis != 0 && axis != -rank))
      return refuse("the GPU kernel takes rows along the first dim, found axis {} of {}", axis,
                    describe(whole));
    std::vector<int64_t> rows;
    MILLRACE_RETURN_IF_ERROR(read_ids(*memory, *chosen, rows));
    for (const int64_t row : rows) {
      if (row < 0 || row >= whole.dim(0)) return refuse("index {} of {}", row, whole.dim(0));
    }
    return rows;
  }
};

StatusOr<GpuPick> gpu_pick(const KernelSetup& op, const char* axis) {
  if (op.input("Axis")) return refuse("the axis is given by a tensor");
  return GpuPick{&memory_of(op), op.input("X"), op.input("Index"), op.attr<int64_t>(axis)};
}

template <typename Id>
Status take_rows(Device& device, const Tensor& from, const Tensor& index, Tensor& to) {
  const int64_t row = from.bytes() / from.dim(0);
  const int64_t width = common_factor(16, {row, address_of(from.raw()), address_of(to.raw())});
  return with_word(width, [&](auto word) {
    using Word = decltype(word);
    return each(device,
                TakeRows<Word, Id>{reinterpret_cast<const Word*>(from.raw()),
                                   reinterpret_cast<const Id*>(index.raw()),
                                   reinterpret_cast<Word*>(to.raw()), Divider(row / width),
                                   from.dim(0), -1, Word{}},
                to.bytes() / width);
  });
}

StatusOr<Kernel> pick_rows(const KernelSetup& op, const char* axis) {
  MILLRACE_ASSIGN_OR_RETURN(const GpuPick pick, gpu_pick(op, axis));
  return Kernel([pick, out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, pick.x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, pick.read(ctx, *from));
    Tensor& to = ctx.out(out);
    if (!to.initialized() || to.dtype() != from->dtype() || to.raw() == from->raw() ||
        to.numel() != static_cast<int64_t>(rows.size()) * (from->numel() / from->dim(0)) ||
        to.numel() >= int64_t{1} << 31)
      return refuse("{} becomes {}", describe(*from), describe(to));
    const Tensor& index = ctx.in(pick.index);
    return index.dtype() == DType::kInt64
               ? take_rows<int64_t>(pick.memory->device(), *from, index, to)
               : take_rows<int32_t>(pick.memory->device(), *from, index, to);
  });
}

StatusOr<Kernel> pick_rows_grad(const KernelSetup& op, const char* axis) {
  MILLRACE_ASSIGN_OR_RETURN(const GpuPick pick, gpu_pick(op, axis));
  return Kernel([pick, grouped = std::make_shared<GroupedRows>(), dout = op.input("Out@GRAD"),
                 dx = op.output("X@GRAD")](const KernelContext& ctx) -> Status {
    Tensor* const to = ctx.find_out(dx);
    if (to == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "Out@GRAD"));
    MILLRACE_RETURN_IF_ERROR(all_floats({d, to}));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, pick.read(ctx, *to));
    const int64_t width = to->numel() / to->dim(0);
    if (d->numel() != static_cast<int64_t>(rows.size()) * width || d->raw() == to->raw() ||
        d->numel() >= int64_t{1} << 31)
      return refuse("Out@GRAD {}", describe(*d));
    Device& device = pick.memory->device();
    MILLRACE_RETURN_IF_ERROR(clear_elements(device, *to));
    if (rows.empty()) return Ok();
    MILLRACE_RETURN_IF_ERROR(grouped->make(*pick.memory, rows, -1));
    return each(device, PutSums{grouped->groups(floats(d), width), floats(*to)},
                grouped->count() * width);
  });
}

StatusOr<Kernel> gpu_gather(const KernelSetup& op) {
  return pick_rows(op, "axis");
}
StatusOr<Kernel> gpu_gather_grad(const KernelSetup& op) {
  return pick_rows_grad(op, "axis");
}
StatusOr<Kernel> gpu_index_select(const KernelSetup& op) {
  return pick_rows(op, "dim");
}
StatusOr<Kernel> gpu_index_select_grad(const KernelSetup& op) {
  return pick_rows_grad(op, "dim");
}

// Rows of a sparse gradient, each once and in ascending order, as on the CPU.
StatusOr<Kernel> gpu_merge_rows(const KernelSetup& op) {
  return Kernel([&memory = memory_of(op), grouped = std::make_shared<GroupedRows>(),
                 x = op.input("X"), out = op.output("Out")](const KernelContext& ctx) -> Status {
    const auto* const from = ctx.in_value(x).get_if<SelectedRows>();
    if (from == nullptr || from->rows.empty() || from->value.dtype() != DType::kFloat32)
      return refuse("X {}", describe(ctx.in_value(x)));
    for (const int64_t row : from->rows) {
      if (row < 0 || row >= from->height) return refuse("row {} of {}", row, from->height);
    }
    const int64_t width = from->value.numel() / from->value.dim(0);
    if (width == 0 || from->value.numel() >= int64_t{1} << 31) return refuse("rows of {}", width);
    MILLRACE_RETURN_IF_ERROR(grouped->make(memory, from->rows, -1, true));
    SelectedRows made;
    made.height = from->height;
    made.rows.assign(grouped->rows().begin(), grouped->rows().end());
    Dims dims(from->value.dims().begin(), from->value.dims().end());
    dims[0] = grouped->count();
    MILLRACE_RETURN_IF_ERROR(
        resize_resident(made.value, DType::kFloat32, dims, memory, "values of rows"));
    MILLRACE_RETURN_IF_ERROR(each(
        memory.device(), GroupSums{grouped->groups(floats(from->value), width), floats(made.value)},
        made.value.numel()));
    ctx.out_value(out).as<SelectedRows>() = std::move(made);
    return Ok();
  });
}

StatusOr<Kernel> gpu_rows_tensor(const KernelSetup& op) {
  return Kernel([&memory = memory_of(op), x = op.input("X"),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    const auto* const from = ctx.in_value(x).get_if<SelectedRows>();
    if (from == nullptr || from->value.bytes() == 0)
      return refuse("X {}", describe(ctx.in_value(x)));
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(
        resize_resident(to, from->value.dtype(), from->value.dims(), memory, "values of rows"));
    return memory.device().copy(from->value.raw(), to.raw(), to.bytes());
  });
}

}  // namespace

void add_gather(KernelRegistry& registry) {
  registry.add("gather", gpu_gather);
  registry.add("gather_grad", gpu_gather_grad);
  registry.add("index_select", gpu_index_select);
  registry.add("index_select_grad", gpu_index_select_grad);
  registry.add("merge_selected_rows", gpu_merge_rows);
  registry.add("get_tensor_from_selected_rows", gpu_rows_tensor);
}

}  // namespace millrace::gpu
