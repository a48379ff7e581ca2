#include <algorithm>

#include "kernels/gpu/ops/lines.h"
#include "kernels/registry.h"

// Ops that choose between tensors, keep a part of each matrix, or move elements around.
namespace millrace::gpu {
namespace {

// Calls body with a word of the size of an element. Errors: rejects elements above 8 bytes.
template <typename Body>
Status with_element_word(DType dtype, const Body& body) {
  return with_word(dtype_size(dtype), [&](auto word) -> Status {
    if constexpr (sizeof(word) <= 8) {
      return body(word);
    } else {
      return refuse("elements of {} bytes", sizeof(word));
    }
  });
}

// \param x, y  null: zeros
Status choose(Device& device, const Tensor& condition, const Tensor* x, const Tensor* y,
              Tensor& to) {
  return with_element_word(to.dtype(), [&](auto word) {
    using Word = decltype(word);
    const auto words = [](const Tensor* tensor) {
      return tensor == nullptr ? nullptr : reinterpret_cast<const Word*>(tensor->raw());
    };
    return each(device,
                Choose<Word>{reinterpret_cast<const uint8_t*>(condition.raw()), words(x), words(y),
                             reinterpret_cast<Word*>(to.raw())},
                to.numel());
  });
}

StatusOr<Kernel> gpu_where(const KernelSetup& op) {
  return Kernel([&device = device_of(op), condition = op.input("Condition"), x = op.input("X"),
                 y = op.input("Y"), out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const c, needed_here(ctx, condition, "Condition"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const a, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const b, needed_here(ctx, y, "Y"));
    Tensor& to = ctx.out(out);
    if (c->dtype() != DType::kBool || a->dtype() != b->dtype() || a->dtype() != to.dtype() ||
        c->numel() != to.numel() || a->numel() != to.numel() || b->numel() != to.numel() ||
        c->raw() == to.raw())
      return refuse("Condition {}, X {} and Y {}", describe(*c), describe(*a), describe(*b));
    return choose(device, *c, a, b, to);
  });
}

StatusOr<Kernel> gpu_where_grad(const KernelSetup& op) {
  return Kernel([&device = device_of(op), condition = op.input("Condition"),
                 dout = op.input("Out@GRAD"), dx = op.output("X@GRAD"),
                 dy = op.output("Y@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const c, needed_here(ctx, condition, "Condition"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "Out@GRAD"));
    if (c->dtype() != DType::kBool || c->numel() != d->numel())
      return refuse("Condition {}", describe(*c));
    // Y's gradient first: X's may share memory with the incoming one
    for (const bool of_y : {true, false}) {
      Tensor* const to = ctx.find_out(of_y ? dy : dx);
      if (to == nullptr) continue;
      if (to->dtype() != d->dtype() || to->numel() != d->numel() ||
          (of_y && to->raw() == d->raw() && d->bytes() > 0))
        return refuse("the gradient of an operand is {}", describe(*to));
    }
    for (const bool of_y : {true, false}) {
      if (Tensor* const to = ctx.find_out(of_y ? dy : dx))
        MILLRACE_RETURN_IF_ERROR(choose(device, *c, of_y ? nullptr : d, of_y ? d : nullptr, *to));
    }
    return Ok();
  });
}

// Input and output slots of ops whose gradient does the same to the gradient.
struct SameSlots {
  const char* in;
  const char* out;
};
constexpr SameSlots kForward{"X", "Out"};
constexpr SameSlots kBackward{"Out@GRAD", "X@GRAD"};

template <const SameSlots& kSlots>
StatusOr<Kernel> gpu_triangle(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.input(kSlots.in), out = op.output(kSlots.out),
                 diagonal = op.attr<int64_t>("diagonal"),
                 lower = op.attr<bool>("lower")](const KernelContext& ctx) -> Status {
    Tensor* const to = ctx.find_out(out);
    if (to == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, kSlots.in));
    if (from->rank() < 2 || from->numel() == 0 || to->dtype() != from->dtype() ||
        to->numel() != from->numel() || from->numel() >= int64_t{1} << 31)
      return refuse("{} becomes {}", describe(*from), describe(*to));
    return with_element_word(from->dtype(), [&](auto word) {
      using Word = decltype(word);
      return each(device,
                  Triangle<Word>{reinterpret_cast<const Word*>(from->raw()),
                                 reinterpret_cast<Word*>(to->raw()), Divider(from->dim(-1)),
                                 Divider(from->dim(-2)), diagonal, lower},
                  to->numel());
    });
  });
}

StatusOr<Kernel> gpu_eye(const KernelSetup& op) {
  return Kernel([&device = device_of(op),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    Tensor& to = ctx.out(out);
    if (!to.initialized() || to.rank() != 2 || to.numel() == 0)
      return refuse("Out {}", describe(to));
    const bool f32 = to.dtype() == DType::kFloat32;
    const bool whole = to.dtype() == DType::kInt32 || to.dtype() == DType::kInt64;
    if (!f32 && !whole && to.dtype() != DType::kFloat64) return refuse("Out {}", describe(to));
    MILLRACE_RETURN_IF_ERROR(clear_elements(device, to));
    return with_element_word(to.dtype(), [&](auto word) {
      using Word = decltype(word);
      const uint64_t one = whole ? 1
                           : f32 ? __builtin_bit_cast(uint32_t, 1.0F)
                                 : __builtin_bit_cast(uint64_t, 1.0);
      return each(
          device,
          SetEvery<Word>{reinterpret_cast<Word*>(to.raw()), static_cast<Word>(one), to.dim(1) + 1},
          std::min(to.dim(0), to.dim(1)));
    });
  });
}

// The other distance along the dims that roll.
StatusOr<Dims> roll_distances(llvm::ArrayRef<int64_t> dims, const std::vector<int64_t>& shifts,
                              const std::vector<int64_t>& axes, bool backwards) {
  if (shifts.size() != axes.size()) return refuse("there are {} shifts", shifts.size());
  const auto rank = static_cast<int64_t>(dims.size());
  Dims moved(dims.size(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (axis < 0 || axis >= rank) return refuse("axis {}", axes[i]);
    const auto at = static_cast<size_t>(axis);
    const int64_t shift = backwards ? -(shifts[i] % dims[at]) : shifts[i] % dims[at];
    moved[at] = ((moved[at] + shift) % dims[at] + dims[at]) % dims[at];
  }
  return moved;
}

// Each dim that rolls has two parts; every combination of them is a box.
Status roll_boxes(Device& device, llvm::ArrayRef<int64_t> dims, const Dims& moved,
                  const Tensor& from, Tensor& to) {
  const auto strides = row_major_strides(dims);
  llvm::SmallVector<size_t, 4> rolls;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (moved[d] != 0) rolls.push_back(d);
  }
  for (uint64_t choice = 0; choice < uint64_t{1} << rolls.size(); ++choice) {
    Dims extents(dims.begin(), dims.end());
    int64_t to_start = 0;
    int64_t from_start = 0;
    for (size_t k = 0; k < rolls.size(); ++k) {
      const size_t d = rolls[k];
      const bool wraps = (choice >> k & 1U) != 0;  // the part that appears at the front
      extents[d] = wraps ? moved[d] : dims[d] - moved[d];
      (wraps ? from_start : to_start) += (wraps ? dims[d] - moved[d] : moved[d]) * strides[d];
    }
    Box<2> box;
    for (size_t d = 0; d < dims.size(); ++d) box.push(extents[d], {strides[d], strides[d]});
    MILLRACE_RETURN_IF_ERROR(move_elements(device, box, to, to_start, from, from_start));
  }
  return Ok();
}

template <const SameSlots& kSlots>
StatusOr<Kernel> gpu_roll(const KernelSetup& op) {
  if (op.inputs("ShiftsTensor").count > 0) return refuse("shifts given by a tensor");
  return Kernel(
      [&device = device_of(op), x = op.input(kSlots.in), out = op.output(kSlots.out),
       axes = op.attr<std::vector<int64_t>>("axis"),
       shifts = op.attr<std::vector<int64_t>>("shifts")](const KernelContext& ctx) -> Status {
        Tensor* const to = ctx.find_out(out);
        if (to == nullptr) return Ok();
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, kSlots.in));
        if (to->dtype() != from->dtype() || to->numel() != from->numel() || from->numel() == 0 ||
            to->raw() == from->raw())
          return refuse("{} becomes {}", describe(*from), describe(*to));
        const int64_t flat[] = {from->numel()};
        const llvm::ArrayRef<int64_t> dims =
            axes.empty() ? llvm::ArrayRef<int64_t>(flat) : from->dims();
        MILLRACE_ASSIGN_OR_RETURN(
            const Dims moved,
            roll_distances(dims, shifts, axes.empty() ? std::vector<int64_t>{0} : axes,
                           &kSlots == &kBackward));
        Box<2> whole;
        for (const int64_t stride : row_major_strides(dims)) whole.push(2, {stride, stride + 1});
        MILLRACE_RETURN_IF_ERROR(whole.walk().status());  // too many dims for any part
        return roll_boxes(device, dims, moved, *from, *to);
      });
}

// Matrices of multiplex; absent ones are null. Errors: rejects other types or dims.
template <typename Find>
StatusOr<std::vector<std::byte*>> matrices_of(int32_t count, const Tensor& rows, const Find& find) {
  if (count > kMostChoices) return refuse("there are {} operands", count);
  std::vector<std::byte*> made;
  for (int32_t k = 0; k < count; ++k) {
    const Tensor* const matrix = find(k);
    if (matrix != nullptr && (matrix->dtype() != rows.dtype() || matrix->dims() != rows.dims() ||
                              matrix->raw() == rows.raw()))
      return refuse("operand {} is {}", k, describe(*matrix));
    // gradients are written through it
    made.push_back(matrix == nullptr ? nullptr : const_cast<std::byte*>(matrix->raw()));
  }
  return made;
}

// \param puts  rows are given to the matrices
Status run_multiplex(Memory& memory, const std::vector<std::byte*>& matrices, const Tensor& ids,
                     const Tensor& rows, bool puts) {
  std::vector<int64_t> numbers;
  MILLRACE_RETURN_IF_ERROR(read_ids(memory, ids, numbers));
  if (rows.numel() == 0 || static_cast<int64_t>(numbers.size()) != rows.dim(0))
    return refuse("Ids {}", describe(ids));
  for (const int64_t number : numbers) {
    const bool exists = number >= 0 && number < static_cast<int64_t>(matrices.size());
    if (!exists || (!puts && matrices[static_cast<size_t>(number)] == nullptr))
      return refuse("Ids has {}", number);
  }
  return with_element_word(rows.dtype(), [&](auto word) {
    using Word = decltype(word);
    Multiplex<Word> choice{};
    for (size_t k = 0; k < matrices.size(); ++k)
      choice.matrices[k] = reinterpret_cast<Word*>(matrices[k]);
    choice.rows = reinterpret_cast<Word*>(const_cast<std::byte*>(rows.raw()));
    choice.index = index_values(ids);
    choice.width = Divider(rows.numel() / rows.dim(0));
    choice.puts = puts;
    return each(memory.device(), choice, rows.numel());
  });
}

StatusOr<Kernel> gpu_multiplex(const KernelSetup& op) {
  return Kernel([&memory = memory_of(op), ids_arg = op.input("Ids"), x = op.inputs("X"),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const ids, needed_here(ctx, ids_arg, "Ids"));
    const Tensor& to = ctx.out(out);
    if (to.numel() >= int64_t{1} << 31) return refuse("Out {}", describe(to));
    MILLRACE_ASSIGN_OR_RETURN(const auto matrices, matrices_of(x.count, to, [&](int32_t k) {
                                return ctx.has_in(x, k) ? ctx.in_value(x, k).get_if<Tensor>()
                                                        : nullptr;
                              }));
    return run_multiplex(memory, matrices, *ids, to, /*puts=*/false);
  });
}

StatusOr<Kernel> gpu_multiplex_grad(const KernelSetup& op) {
  return Kernel([&memory = memory_of(op), ids_arg = op.input("Ids"), dout = op.input("Out@GRAD"),
                 dx = op.outputs("X@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const ids, needed_here(ctx, ids_arg, "Ids"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "Out@GRAD"));
    if (d->numel() >= int64_t{1} << 31) return refuse("Out@GRAD {}", describe(*d));
    const auto gradient = [&](int32_t k) { return ctx.has_out(dx, k) ? &ctx.out(dx, k) : nullptr; };
    MILLRACE_ASSIGN_OR_RETURN(const auto matrices, matrices_of(dx.count, *d, gradient));
    for (int32_t k = 0; k < dx.count; ++k) {
      if (Tensor* const to = gradient(k))
        MILLRACE_RETURN_IF_ERROR(clear_elements(memory.device(), *to));
    }
    return run_multiplex(memory, matrices, *ids, *d, /*puts=*/true);
  });
}

}  // namespace

void add_choices(KernelRegistry& registry) {
  registry.add("where", gpu_where);
  registry.add("where_grad", gpu_where_grad);
  registry.add("tril_triu", gpu_triangle<kForward>);
  registry.add("tril_triu_grad", gpu_triangle<kBackward>);
  registry.add("eye", gpu_eye);
  registry.add("roll", gpu_roll<kForward>);
  registry.add("roll_grad", gpu_roll<kBackward>);
  registry.add("multiplex", gpu_multiplex);
  registry.add("multiplex_grad", gpu_multiplex_grad);
}

}  // namespace millrace::gpu
