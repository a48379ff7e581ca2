#include <algorithm>
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

int64_t longest(llvm::ArrayRef<int64_t> offsets) {
  int64_t most = 0;
  for (size_t i = 0; i + 1 < offsets.size(); ++i)
    most = std::max(most, offsets[i + 1] - offsets[i]);
  return most;
}

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
    if (to.rank() < 2 || to.dtype() != from->dtype() || value->dtype() != from->dtype() ||
        (value->numel() != 1 && value->numel() != width) || longest(offsets) > to.dim(1) ||
        to.numel() != sequences * to.dim(1) * width || is_same_memory(to, *from) ||
        is_same_memory(to, *value))
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

StatusOr<Kernel> gpu_pad_grad(const KernelSetup& op) {
  return Kernel(
      [x = op.input("X"), dout = op.input("Out@GRAD"), dx = op.output("X@GRAD"),
       picks = std::make_shared<RowPicks>(memory_of(op))](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "Out@GRAD"));
        MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *from));
        if (to == nullptr) return Ok();
        MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, outermost_here(*from));
        const int64_t width = kernels::row_width(*from);
        const auto sequences = static_cast<int64_t>(offsets.size()) - 1;
        if (d->rank() < 2 || d->dtype() != from->dtype() || d->dim(0) != sequences ||
            d->numel() != sequences * d->dim(1) * width || longest(offsets) > d->dim(1) ||
            is_same_memory(*to, *d))
          return refuse("Out@GRAD {}", describe(*d));
        return picks->run(packed(offsets, d->dim(1)), d->raw(), width * dtype_size(from->dtype()),
                          to->raw());
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

StatusOr<Kernel> gpu_unpad_grad(const KernelSetup& op) {
  return Kernel(
      [x = op.input("X"), dout = op.input("Out@GRAD"), dx = op.output("X@GRAD"),
       picks = std::make_shared<RowPicks>(memory_of(op))](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "Out@GRAD"));
        MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *from));
        if (to == nullptr) return Ok();
        MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, innermost_here(*d));
        const int64_t width = kernels::row_width(*d);
        const auto sequences = static_cast<int64_t>(offsets.size()) - 1;
        if (from->rank() < 2 || d->dtype() != from->dtype() || from->dim(0) != sequences ||
            from->numel() != sequences * from->dim(1) * width || longest(offsets) > from->dim(1) ||
            is_same_memory(*to, *d))
          return refuse("Out@GRAD {}", describe(*d));
        return picks->run(padded(offsets, from->dim(1)), d->raw(), width * dtype_size(d->dtype()),
                          to->raw());
      });
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
