#include "kernels/gpu/functors/embedding.h"
#include "kernels/gpu/ops/host_call.h"
#include "kernels/gpu/ops/lines.h"
#include "kernels/gpu/resident.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

// Parts of a tensor by index, along a dim.
namespace millrace::gpu {
namespace {

struct GpuPick {
  Memory* memory;
  ArgIndex x, index, axis_tensor;
  int64_t axis;

  // Indices in process memory, and the axis. Errors: rejects numbers that the CPU kernel reports.
  struct Picked {
    std::vector<int64_t> rows;
    size_t axis = 0;
    int64_t outer = 1;
    int64_t inner = 1;
  };
  [[nodiscard]] StatusOr<Picked> read(const KernelContext& ctx, const Tensor& whole) const {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const chosen, needed_here(ctx, index, "Index"));
    std::vector<int64_t> given{axis};
    if (axis_tensor) {
      MILLRACE_ASSIGN_OR_RETURN(const Tensor* const tensor, needed_here(ctx, axis_tensor, "Axis"));
      MILLRACE_RETURN_IF_ERROR(read_ids(*memory, *tensor, given));
    }
    const auto rank = static_cast<int64_t>(whole.rank());
    if (given.size() != 1 || rank == 0 || whole.numel() == 0 || given[0] >= rank ||
        given[0] < -rank)
      return refuse("{} along an axis", describe(whole));
    Picked picked;
    picked.axis = static_cast<size_t>(given[0] < 0 ? given[0] + rank : given[0]);
    picked.outer = ops::dims_product(whole.dims().take_front(picked.axis));
    picked.inner = ops::dims_product(whole.dims().drop_front(picked.axis + 1));
    MILLRACE_RETURN_IF_ERROR(read_ids(*memory, *chosen, picked.rows));
    const int64_t size = whole.dims()[picked.axis];
    for (const int64_t row : picked.rows) {
      if (row < 0 || row >= size) return refuse("index {} of {}", row, size);
    }
    return picked;
  }
};

StatusOr<GpuPick> gpu_pick(const KernelSetup& op, const char* axis) {
  return GpuPick{&memory_of(op), op.input("X"), op.input("Index"), op.input("Axis"),
                 op.attr<int64_t>(axis)};
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

// Along another axis than the first.
Status take_inside(Device& device, const GpuPick::Picked& p, const Tensor& from,
                   const Tensor& index, Tensor& to) {
  const int64_t size = from.dims()[p.axis];
  Box<2> box;
  box.push(p.outer, {size * p.inner, 0});
  box.push(static_cast<int64_t>(p.rows.size()), {0, 1});
  box.push(p.inner, {1, 0});
  return take_elements(device, box, {&index, {p.inner}}, from, to, /*puts=*/false);
}

StatusOr<Kernel> pick_rows(const KernelSetup& op, const char* axis) {
  MILLRACE_ASSIGN_OR_RETURN(const GpuPick pick, gpu_pick(op, axis));
  return Kernel([pick, out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, pick.x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const GpuPick::Picked p, pick.read(ctx, *from));
    const Tensor& index = ctx.in(pick.index);
    Tensor& to = ctx.out(out);
    if (pick.axis_tensor) {
      Dims dims(from->dims().begin(), from->dims().end());
      dims[p.axis] = index.numel();
      if (index.rank() == 0) dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(p.axis));
      MILLRACE_RETURN_IF_ERROR(size_here(*pick.memory, to, from->dtype(), dims));
    }
    if (!to.initialized() || to.dtype() != from->dtype() || to.raw() == from->raw() ||
        to.numel() != p.outer * static_cast<int64_t>(p.rows.size()) * p.inner ||
        to.numel() >= int64_t{1} << 31)
      return refuse("{} becomes {}", describe(*from), describe(to));
    Device& device = pick.memory->device();
    if (p.axis != 0) return take_inside(device, p, *from, index, to);
    return index.dtype() == DType::kInt64 ? take_rows<int64_t>(device, *from, index, to)
                                          : take_rows<int32_t>(device, *from, index, to);
  });
}

StatusOr<Kernel> pick_rows_grad(const KernelSetup& op, const char* axis) {
  MILLRACE_ASSIGN_OR_RETURN(const GpuPick pick, gpu_pick(op, axis));
  return index_gradient(
      op, {"Index", "Out@GRAD", "X@GRAD"},
      [pick, grouped = std::make_shared<GroupedRows>()](const KernelContext& ctx,
                                                        const Tensor& /*index*/, const Tensor& d,
                                                        Tensor& to) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(GpuPick::Picked p, pick.read(ctx, to));
        const auto count = static_cast<int64_t>(p.rows.size());
        if (d.numel() != p.outer * count * p.inner || !is_added(d.dtype()) ||
            d.numel() >= int64_t{1} << 31)
          return refuse("Out@GRAD {}", describe(d));
        const int64_t size = to.dims()[p.axis];
        for (int64_t o = 1; o < p.outer; ++o) {
          for (int64_t i = 0; i < count; ++i)
            p.rows.push_back(o * size + p.rows[static_cast<size_t>(i)]);
        }
        MILLRACE_RETURN_IF_ERROR(clear_elements(pick.memory->device(), to));
        return add_lines(*pick.memory, *grouped, p.rows, d, p.inner, to, /*replaces=*/true);
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
