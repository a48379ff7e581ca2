#include <memory>

#include "kernels/cpu/merge_rows.h"
#include "kernels/gpu/ops/row_groups.h"
#include "kernels/gpu/ops/row_picks.h"
#include "kernels/gpu/resident.h"
#include "kernels/registry.h"

// Conversion between sequences with LoD and rows of fixed length.
namespace millrace::gpu {
namespace padded_rows {
namespace {

// The packed row of each time step of the padded rows; -1 after the end of a sequence.
std::vector<int64_t> padded(llvm::ArrayRef<int64_t> offsets, int64_t steps) {
  std::vector<int64_t> rows;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    for (int64_t t = 0; t < steps; ++t)
      rows.push_back(offsets[i] + t < offsets[i + 1] ? offsets[i] + t : -1);
  }
  return rows;
}

// The inverse: the time step of the padded rows, counted through, of each packed row.
std::vector<int64_t> packed(llvm::ArrayRef<int64_t> offsets, int64_t steps) {
  std::vector<int64_t> rows;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    for (int64_t t = 0; t < offsets[i + 1] - offsets[i]; ++t)
      rows.push_back(static_cast<int64_t>(i) * steps + t);
  }
  return rows;
}

// True if the tensor has a row for each sequence, with time steps of `width` elements.
bool is_padded(const Tensor& tensor, llvm::ArrayRef<int64_t> offsets, int64_t width) {
  const auto sequences = static_cast<int64_t>(offsets.size()) - 1;
  if (tensor.rank() < 2 || tensor.dim(0) != sequences ||
      tensor.numel() != sequences * tensor.dim(1) * width)
    return false;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    if (offsets[i + 1] - offsets[i] > tensor.dim(1)) return false;
  }
  return true;
}

StatusOr<Kernel> gpu_pad(const KernelSetup& op) {
  return Kernel([x = op.input("X"), pad = op.input("PadValue"), out = op.output("Out"),
                 length = op.output("Length"), lengths = std::make_shared<DeviceNumbers>(),
                 picks = std::make_shared<RowPicks>(memory_of(op))](
                    const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const value, needed_here(ctx, pad, "PadValue"));
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, outermost_here(*from));
    const int64_t width = kernels::row_width(*from);
    Tensor& to = ctx.out(out);
    Tensor* const to_length = ctx.find_out(length);
    const auto sequences = static_cast<int64_t>(offsets.size()) - 1;
    if (!is_padded(to, offsets, width) || to.dtype() != from->dtype() ||
        value->dtype() != from->dtype() || (value->numel() != 1 && value->numel() != width) ||
        is_same_memory(to, *from) || is_same_memory(to, *value))
      return refuse("{} is padded to {}", describe(*from), describe(to));
    if (to_length != nullptr &&
        (to_length->dtype() != DType::kInt64 || to_length->numel() != sequences))
      return refuse("Length {}", describe(*to_length));
    const int64_t element = dtype_size(from->dtype());
    MILLRACE_RETURN_IF_ERROR(picks->run(padded(offsets, to.dim(1)), from->raw(), width * element,
                                        to.raw(),
                                        {value->raw(), value->numel() == width ? 0 : element}));
    if (to_length == nullptr || sequences == 0) return Ok();
    std::vector<int64_t> counts;
    for (int64_t i = 0; i < sequences; ++i)
      counts.push_back(offsets[static_cast<size_t>(i) + 1] - offsets[static_cast<size_t>(i)]);
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const there, lengths->get(picks->memory(), counts));
    return picks->memory().device().copy(reinterpret_cast<const std::byte*>(there),
                                         to_length->raw(), to_length->bytes());
  });
}

StatusOr<Kernel> gpu_unpad(const KernelSetup& op) {
  return Kernel(
      [x = op.input("X"), length = op.input("Length"), out = op.output("Out"),
       picks = std::make_shared<RowPicks>(memory_of(op))](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const given, needed_here(ctx, length, "Length"));
        std::vector<int64_t> lengths;
        MILLRACE_RETURN_IF_ERROR(read_ids(picks->memory(), *given, lengths));
        if (from->rank() < 2 || static_cast<int64_t>(lengths.size()) != from->dim(0))
          return refuse("X {}", describe(*from));
        LodLevel level{0};
        for (const int64_t count : lengths) {
          if (count < 0 || count > from->dim(1)) return refuse("a length is {}", count);
          level.push_back(level.back() + count);
        }
        Tensor& to = ctx.out(out);
        if (is_same_memory(to, *from)) return refuse("Out shares memory with X");
        Dims dims{level.back()};
        if (from->rank() == 2) dims.push_back(1);
        dims.append(from->dims().begin() + 2, from->dims().end());
        MILLRACE_RETURN_IF_ERROR(
            resize_resident(to, from->dtype(), dims, picks->memory(), "packed sequences"));
        const std::vector<int64_t> rows = packed(level, from->dim(1));
        to.set_lod(Lod({std::move(level)}));
        return picks->run(rows, from->raw(), kernels::row_width(to) * dtype_size(from->dtype()),
                          to.raw());
      });
}

// \param packs  the gradient is packed, as X of sequence_pad; else padded, as X of sequence_unpad
Kernel moved_gradient(const KernelSetup& op, bool packs) {
  return [args = MovedGradientArgs(op), packs,
          picks = std::make_shared<RowPicks>(memory_of(op))](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const MovedGradient g, args.find(ctx));
    if (g.to == nullptr) return Ok();
    const Tensor& flat = packs ? *g.x : *g.dout;
    const Tensor& wide = packs ? *g.dout : *g.x;
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets,
                              packs ? outermost_here(flat) : innermost_here(flat));
    if (!is_padded(wide, offsets, kernels::row_width(flat)))
      return refuse("Out@GRAD {}", describe(*g.dout));
    const std::vector<int64_t> rows =
        packs ? packed(offsets, wide.dim(1)) : padded(offsets, wide.dim(1));
    return picks->run(rows, g.dout->raw(), row_bytes_of(flat), g.to->raw());
  };
}

StatusOr<Kernel> gpu_pad_grad(const KernelSetup& op) {
  return moved_gradient(op, true);
}
StatusOr<Kernel> gpu_unpad_grad(const KernelSetup& op) {
  return moved_gradient(op, false);
}

}  // namespace
}  // namespace padded_rows

void add_sequence_pad(KernelRegistry& registry) {
  using namespace padded_rows;
  registry.add("sequence_pad", gpu_pad);
  registry.add("sequence_pad_grad", gpu_pad_grad);
  registry.add("sequence_unpad", gpu_unpad);
  registry.add("sequence_unpad_grad", gpu_unpad_grad);
}

}  // namespace millrace::gpu
