#include "kernels/cpu/int_list.h"
#include "kernels/gpu/ops/lines.h"
#include "kernels/registry.h"
#include "ops/infer_context.h"

// gather_nd, scatter and others whose indices may name any element. The processor reads the indices
// and reports those out of range.
namespace millrace::gpu {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 31;

// Row numbers of a matrix that nd coordinates name, and the elements of a row.
struct NamedRows {
  std::vector<int64_t> rows;
  int64_t width = 1;
  llvm::SmallVector<int64_t, 4> steps;  // in elements, by coordinate
};

// Errors: rejects an index that the CPU kernel reports.
StatusOr<NamedRows> named_rows(Memory& memory, const Tensor& index, llvm::ArrayRef<int64_t> dims) {
  if (index.rank() == 0 || index.dims().back() > static_cast<int64_t>(dims.size()))
    return refuse("Index {}", describe(index));
  const auto depth = static_cast<size_t>(index.dims().back());
  NamedRows named;
  named.width = ops::dims_product(dims.drop_front(depth));
  const auto strides = row_major_strides(dims);
  named.steps.assign(strides.begin(), strides.begin() + static_cast<std::ptrdiff_t>(depth));
  std::vector<int64_t> numbers;
  MILLRACE_RETURN_IF_ERROR(read_ids(memory, index, numbers));
  named.rows.resize(static_cast<size_t>(ops::dims_product(index.dims().drop_back())));
  for (size_t i = 0; i < named.rows.size(); ++i) {
    int64_t row = 0;
    for (size_t d = 0; d < depth; ++d) {
      const int64_t at = numbers[i * depth + d];
      if (at < 0 || at >= dims[d]) return refuse("Index has {} in dim {}", at, d);
      row = row * dims[d] + at;
    }
    named.rows[i] = row;
  }
  return named;
}

// to = the named rows of from.
Status take_named(Device& device, const NamedRows& named, const Tensor& index, const Tensor& from,
                  Tensor& to) {
  const auto count = static_cast<int64_t>(named.rows.size());
  if (to.dtype() != from.dtype() || to.numel() != count * named.width || to.raw() == from.raw() ||
      to.numel() >= kMostElements)
    return refuse("{} becomes {}", describe(from), describe(to));
  Box<2> box;
  box.push(count, {0, static_cast<int64_t>(named.steps.size())});
  box.push(named.width, {1, 0});
  return take_elements(device, box, {&index, named.steps}, from, to, /*puts=*/false);
}

StatusOr<Kernel> gpu_gather_nd(const KernelSetup& op) {
  return Kernel([&memory = memory_of(op), x = op.input("X"), index_arg = op.input("Index"),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const index, needed_here(ctx, index_arg, "Index"));
    MILLRACE_ASSIGN_OR_RETURN(const NamedRows named, named_rows(memory, *index, from->dims()));
    return take_named(memory.device(), named, *index, *from, ctx.out(out));
  });
}

StatusOr<Kernel> gpu_gather_nd_grad(const KernelSetup& op) {
  return index_gradient(
      op, {"Index", "Out@GRAD", "X@GRAD"},
      [&memory = memory_of(op), grouped = std::make_shared<GroupedRows>()](
          const KernelContext& /*ctx*/, const Tensor& index, const Tensor& d,
          Tensor& to) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const NamedRows named, named_rows(memory, index, to.dims()));
        if (d.numel() != static_cast<int64_t>(named.rows.size()) * named.width ||
            !is_added(d.dtype()))
          return refuse("Out@GRAD {}", describe(d));
        MILLRACE_RETURN_IF_ERROR(clear_elements(memory.device(), to));
        return add_lines(memory, *grouped, named.rows, d, named.width, to, /*replaces=*/false);
      });
}

// Rows of scatter: one number for each line of updates.
StatusOr<std::vector<int64_t>> scatter_rows(Memory& memory, const Tensor& ids, int64_t height) {
  std::vector<int64_t> rows;
  MILLRACE_RETURN_IF_ERROR(read_ids(memory, ids, rows));
  for (const int64_t row : rows) {
    if (row < 0 || row >= height) return refuse("Ids has {} of {}", row, height);
  }
  return rows;
}

// The rows of updates: of scatter, one number each; of scatter_nd_add, coordinates.
StatusOr<NamedRows> rows_of_updates(Memory& memory, const Tensor& index, const Tensor& whole,
                                    bool by_coordinates) {
  if (by_coordinates) return named_rows(memory, index, whole.dims());
  if (whole.numel() == 0) return refuse("X {}", describe(whole));
  NamedRows named;
  MILLRACE_ASSIGN_OR_RETURN(named.rows, scatter_rows(memory, index, whole.dim(0)));
  named.width = whole.numel() / whole.dim(0);
  named.steps = {named.width};
  return named;
}

// What updates do to rows that occur.
enum class Effect : uint8_t { kReplaceByLast, kReplaceBySum, kAdd };

StatusOr<Kernel> update_rows(const KernelSetup& op, const char* index_slot, Effect effect) {
  return Kernel([&memory = memory_of(op), grouped = std::make_shared<GroupedRows>(), effect,
                 x = op.input("X"), index_arg = op.input(index_slot), updates = op.input("Updates"),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const index, needed_here(ctx, index_arg, "indices"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const lines, needed_here(ctx, updates, "Updates"));
    MILLRACE_ASSIGN_OR_RETURN(
        const NamedRows named,
        rows_of_updates(memory, *index, *from, /*by_coordinates=*/effect == Effect::kAdd));
    Tensor& to = ctx.out(out);
    // everything is checked before the copy: the op may write to X itself
    const bool fits =
        effect == Effect::kReplaceByLast ? dtype_size(to.dtype()) <= 8 : is_added(to.dtype());
    if (!fits || to.dtype() != from->dtype() || to.numel() != from->numel() ||
        lines->dtype() != from->dtype() || lines->raw() == to.raw() || named.width == 0 ||
        lines->numel() != static_cast<int64_t>(named.rows.size()) * named.width ||
        std::max(lines->numel(), to.numel()) >= kMostElements)
      return refuse("Updates {} for X {}", describe(*lines), describe(*from));
    MILLRACE_RETURN_IF_ERROR(copy_all(memory.device(), *from, to));
    if (effect == Effect::kReplaceByLast)
      return put_lines(memory, *grouped, named.rows, lines, named.width, to);
    return add_lines(memory, *grouped, named.rows, *lines, named.width, to,
                     effect == Effect::kReplaceBySum);
  });
}

// \param adds  updates were added: all of X has a gradient
StatusOr<Kernel> update_rows_grad(const KernelSetup& op, const char* index_slot, bool adds) {
  return Kernel([&memory = memory_of(op), grouped = std::make_shared<GroupedRows>(), adds,
                 index_arg = op.input(index_slot), dout = op.input("Out@GRAD"),
                 dx = op.output("X@GRAD"),
                 dupdates = op.output("Updates@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "Out@GRAD"));
    Tensor* const to = ctx.find_out(dx);
    if ((to != nullptr && (to->dtype() != d->dtype() || to->dims() != d->dims())) ||
        d->numel() >= kMostElements || dtype_size(d->dtype()) > 8)
      return refuse("Out@GRAD {}", describe(*d));
    NamedRows named;
    Tensor* const updates = ctx.find_out(dupdates);
    if (updates != nullptr || !adds) {
      MILLRACE_ASSIGN_OR_RETURN(const Tensor* const index, needed_here(ctx, index_arg, "indices"));
      MILLRACE_ASSIGN_OR_RETURN(named, rows_of_updates(memory, *index, *d, adds));
      if (updates != nullptr)
        MILLRACE_RETURN_IF_ERROR(take_named(memory.device(), named, *index, *d, *updates));
    }
    if (to == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(copy_all(memory.device(), *d, *to));
    return adds ? Ok() : put_lines(memory, *grouped, named.rows, nullptr, named.width, *to);
  });
}

StatusOr<Kernel> gpu_scatter(const KernelSetup& op) {
  return update_rows(op, "Ids",
                     op.attr<bool>("overwrite") ? Effect::kReplaceByLast : Effect::kReplaceBySum);
}
StatusOr<Kernel> gpu_scatter_grad(const KernelSetup& op) {
  return update_rows_grad(op, "Ids", /*adds=*/false);
}
StatusOr<Kernel> gpu_scatter_nd_add(const KernelSetup& op) {
  return update_rows(op, "Index", Effect::kAdd);
}
StatusOr<Kernel> gpu_scatter_nd_add_grad(const KernelSetup& op) {
  return update_rows_grad(op, "Index", /*adds=*/true);
}

// An index along one axis of a tensor: [outer, count, inner] positions.
struct Along {
  int64_t axis = 0;
  int64_t size = 0;   // extent of the axis
  int64_t inner = 1;  // distance along it
  std::vector<int64_t> numbers;

  // Place of each element of the index in the tensor.
  [[nodiscard]] std::vector<int64_t> places(int64_t count) const {
    std::vector<int64_t> made(numbers.size());
    for (size_t k = 0; k < made.size(); ++k) {
      const auto at = static_cast<int64_t>(k);
      const int64_t outer = at / (count * inner);
      made[k] = (outer * size + numbers[k]) * inner + at % inner;
    }
    return made;
  }
};

// Errors: rejects what the CPU kernel reports: other dims, numbers out of range.
StatusOr<Along> along(Memory& memory, const Tensor& whole, const Tensor& index, int64_t axis) {
  const auto rank = static_cast<int64_t>(whole.rank());
  Along made;
  made.axis = axis < 0 ? axis + rank : axis;
  bool fits = made.axis >= 0 && made.axis < rank && index.rank() == whole.rank();
  for (size_t d = 0; fits && d < whole.rank(); ++d)
    fits = static_cast<int64_t>(d) == made.axis || whole.dims()[d] == index.dims()[d] ||
           (d == 0 && index.dims()[d] < whole.dims()[d]);
  if (!fits || index.numel() == 0)
    return refuse("Index {} along axis {} of {}", describe(index), axis, describe(whole));
  const auto at = static_cast<size_t>(made.axis);
  made.size = whole.dims()[at];
  made.inner = ops::dims_product(whole.dims().drop_front(at + 1));
  MILLRACE_RETURN_IF_ERROR(read_ids(memory, index, made.numbers));
  for (const int64_t number : made.numbers) {
    if (number < 0 || number >= made.size) return refuse("Index has {}", number);
  }
  return made;
}

// to[k] = from[place of k]. Operand 1 of the box is k itself.
Status take_along(Device& device, const Along& a, const Tensor& index, const Tensor& from,
                  Tensor& to) {
  if (to.dtype() != from.dtype() || to.numel() != index.numel() || to.raw() == from.raw())
    return refuse("{} becomes {}", describe(from), describe(to));
  const auto strides = row_major_strides(from.dims());
  const auto of_index = row_major_strides(index.dims());
  Box<2> box;
  for (size_t d = 0; d < index.rank(); ++d)
    box.push(index.dims()[d], {static_cast<int64_t>(d) == a.axis ? 0 : strides[d], of_index[d]});
  return take_elements(device, box, {&index, {a.inner}}, from, to, /*puts=*/false);
}

struct AlongSlots {
  const char* whole;
  const char* part;
  const char* axis;  // null: the last dim
  IndexSlots gradient;
};
constexpr AlongSlots kSampleSlots{"X", "Out", nullptr, {"Index", "Out@GRAD", "X@GRAD"}};
constexpr AlongSlots kTakeSlots{"Input", "Result", "Axis", {"Index", "Result@GRAD", "Input@GRAD"}};

template <const AlongSlots& kSlots>
StatusOr<Kernel> gpu_take_along(const KernelSetup& op) {
  const int64_t axis = kSlots.axis == nullptr ? -1 : op.attr<int64_t>(kSlots.axis);
  return Kernel([&memory = memory_of(op), x = op.input(kSlots.whole), axis,
                 index_arg = op.input("Index"),
                 out = op.output(kSlots.part)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, kSlots.whole));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const index, needed_here(ctx, index_arg, "Index"));
    if (kSlots.axis == nullptr && (from->rank() != 2 || from->dim(0) != index->dim(0)))
      return refuse("X {}", describe(*from));
    MILLRACE_ASSIGN_OR_RETURN(const Along a, along(memory, *from, *index, axis));
    return take_along(memory.device(), a, *index, *from, ctx.out(out));
  });
}

template <const AlongSlots& kSlots>
StatusOr<Kernel> gpu_take_along_grad(const KernelSetup& op) {
  const int64_t axis = kSlots.axis == nullptr ? -1 : op.attr<int64_t>(kSlots.axis);
  return index_gradient(op, kSlots.gradient,
                        [&memory = memory_of(op), grouped = std::make_shared<GroupedRows>(), axis](
                            const KernelContext& /*ctx*/, const Tensor& index, const Tensor& d,
                            Tensor& to) -> Status {
                          if (d.numel() != index.numel() || !is_added(d.dtype()) ||
                              (kSlots.axis == nullptr && to.dim(0) != index.dim(0)))
                            return refuse("the gradient {}", describe(d));
                          MILLRACE_ASSIGN_OR_RETURN(const Along a, along(memory, to, index, axis));
                          MILLRACE_RETURN_IF_ERROR(clear_elements(memory.device(), to));
                          return add_lines(memory, *grouped,
                                           a.places(index.dims()[static_cast<size_t>(a.axis)]), d,
                                           1, to, /*replaces=*/false);
                        });
}

}  // namespace

void add_indexing(KernelRegistry& registry) {
  registry.add("gather_nd", gpu_gather_nd);
  registry.add("gather_nd_grad", gpu_gather_nd_grad);
  registry.add("scatter", gpu_scatter);
  registry.add("scatter_grad", gpu_scatter_grad);
  registry.add("scatter_nd_add", gpu_scatter_nd_add);
  registry.add("scatter_nd_add_grad", gpu_scatter_nd_add_grad);
  registry.add("index_sample", gpu_take_along<kSampleSlots>);
  registry.add("index_sample_grad", gpu_take_along_grad<kSampleSlots>);
  registry.add("take_along_axis", gpu_take_along<kTakeSlots>);
  registry.add("take_along_axis_grad", gpu_take_along_grad<kTakeSlots>);
}

}  // namespace millrace::gpu
