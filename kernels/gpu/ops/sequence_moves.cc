#include <memory>
#include <utility>

#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/gpu/ops/kept_memory.h"
#include "kernels/gpu/ops/row_groups.h"
#include "kernels/gpu/ops/row_picks.h"
#include "kernels/gpu/ops/walk.h"
#include "kernels/gpu/resident.h"
#include "kernels/registry.h"

// Ops that move rows between sequences, for any element type.
namespace millrace::gpu {
namespace moved_rows {
namespace {

// The rows of all X, one after another, in the order of the joined sequences: the number of each in
// that list. Errors: rejects inputs that do not fit.
StatusOr<std::vector<int64_t>> joined_order(const KernelContext& ctx, ArgRange x) {
  std::vector<llvm::ArrayRef<int64_t>> offsets;
  std::vector<int64_t> starts{0};
  for (int32_t k = 0; k < x.count; ++k) {
    const auto* const each = ctx.in_value(x, k).get_if<Tensor>();
    if (each == nullptr || each->rank() == 0) return refuse("an input is missing");
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> found, outermost_here(*each));
    offsets.push_back(found);
    starts.push_back(starts.back() + each->dim(0));
    const auto& first = ctx.in(x, 0);
    if (found.size() != offsets.front().size() || each->dtype() != first.dtype() ||
        kernels::row_width(*each) != kernels::row_width(first))
      return refuse("{} and {} do not fit", describe(first), describe(*each));
  }
  std::vector<int64_t> order;
  for (size_t i = 0; i + 1 < offsets.front().size(); ++i) {
    for (size_t k = 0; k < offsets.size(); ++k) {
      for (int64_t r = offsets[k][i]; r < offsets[k][i + 1]; ++r) order.push_back(starts[k] + r);
    }
  }
  if (static_cast<int64_t>(order.size()) != starts.back()) return refuse("rows of no sequence");
  return order;
}

StatusOr<Kernel> gpu_concat(const KernelSetup& op) {
  Memory& memory = memory_of(op);
  return Kernel([x = op.inputs("X"), out = op.output("Out"),
                 picks = std::make_shared<RowPicks>(memory),
                 all = std::make_shared<KeptMemory<std::byte>>(memory, "joined sequences")](
                    const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> order, joined_order(ctx, x));
    Tensor& to = ctx.out(out);
    if (to.dtype() != ctx.in(x, 0).dtype() || row_bytes_of(to) != row_bytes_of(ctx.in(x, 0)) ||
        to.dim(0) != static_cast<int64_t>(order.size()))
      return refuse("Out {}", describe(to));
    if (to.bytes() == 0) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(std::byte* const joined, all->get(to.bytes()));
    int64_t at = 0;
    for (int32_t k = 0; k < x.count; ++k) {
      const Tensor& from = ctx.in(x, k);
      if (from.bytes() == 0) continue;
      MILLRACE_RETURN_IF_ERROR(
          picks->memory().device().copy(from.raw(), joined + at, from.bytes()));
      at += from.bytes();
    }
    return picks->run(order, joined, row_bytes_of(to), to.raw());
  });
}

StatusOr<Kernel> gpu_concat_grad(const KernelSetup& op) {
  const ArgRange dx = op.outputs("X@GRAD");
  std::vector<std::shared_ptr<RowPicks>> picks;
  for (int32_t k = 0; k < dx.count; ++k) picks.push_back(std::make_shared<RowPicks>(memory_of(op)));
  return Kernel([x = op.inputs("X"), dout = op.input("Out@GRAD"), dx,
                 picks = std::move(picks)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> order, joined_order(ctx, x));
    const Tensor& first = ctx.in(x, 0);
    if (d->rank() == 0 || d->dim(0) != static_cast<int64_t>(order.size()) ||
        d->dtype() != first.dtype() || kernels::row_width(*d) != kernels::row_width(first))
      return refuse("Out@GRAD {}", describe(*d));
    for (int32_t k = 0; k < dx.count; ++k) {
      if (!ctx.has_out(dx, k)) continue;
      const auto* const to = ctx.out_value(dx, k).get_if<Tensor>();
      if (k >= x.count || to == nullptr || to->dtype() != d->dtype() ||
          to->dims() != ctx.in(x, k).dims() || is_same_memory(*to, *d))
        return refuse("the gradient of an input has other dims");
    }
    // the inverse: where each row of the list went
    std::vector<int64_t> places(order.size());
    for (size_t i = 0; i < order.size(); ++i)
      places[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    size_t begin = 0;
    for (int32_t k = 0; k < x.count; ++k) {
      const auto rows = static_cast<size_t>(ctx.in(x, k).dim(0));
      if (k < dx.count && ctx.has_out(dx, k)) {
        Tensor& to = ctx.out(dx, k);
        to.set_lod(ctx.in(x, k).lod());
        MILLRACE_RETURN_IF_ERROR(
            picks[static_cast<size_t>(k)]->run(llvm::ArrayRef<int64_t>(places).slice(begin, rows),
                                               d->raw(), row_bytes_of(*d), to.raw()));
      }
      begin += rows;
    }
    return Ok();
  });
}

StatusOr<Kernel> gpu_reverse(const KernelSetup& op) {
  return Kernel(
      [x = op.input("X"), y = op.output("Y"),
       picks = std::make_shared<RowPicks>(memory_of(op))](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
        MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, innermost_here(*from));
        MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, y, *from));
        if (to == nullptr || is_same_memory(*to, *from)) return refuse("X {}", describe(*from));
        std::vector<int64_t> rows;
        for (size_t i = 0; i + 1 < offsets.size(); ++i) {
          for (int64_t r = offsets[i + 1] - 1; r >= offsets[i]; --r) rows.push_back(r);
        }
        return picks->run(rows, from->raw(), row_bytes_of(*from), to->raw());
      });
}

// The order of the elements does not change, so one copy is enough.
Status copy_elements(Device& device, const Tensor& from, Tensor& to) {
  if (from.bytes() != to.bytes() || from.dtype() != to.dtype())
    return refuse("{} becomes {}", describe(from), describe(to));
  return from.bytes() == 0 || is_same_memory(from, to)
             ? Ok()
             : device.copy(from.raw(), to.raw(), from.bytes());
}

StatusOr<Kernel> gpu_reshape_rows(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.input("X"),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, innermost_here(*from));
    Tensor& to = ctx.out(out);
    const int64_t width = kernels::row_width(to);
    for (const int64_t offset : offsets) {
      if (width == 0 || offset * kernels::row_width(*from) % width != 0)
        return refuse("a sequence ends in the middle of a row of width {}", width);
    }
    return copy_elements(device, *from, to);
  });
}

// Gradient with the elements of Out@GRAD and the dims of X.
StatusOr<Kernel> gpu_reshaped_grad(const KernelSetup& op) {
  return Kernel(
      [&device = device_of(op), args = MovedGradientArgs(op)](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const MovedGradient g, args.find(ctx));
        return g.to == nullptr ? Ok() : copy_elements(device, *g.dout, *g.to);
      });
}

// Parts of sequences.
struct GpuSlice {
  Memory* memory;
  ArgIndex x, offset, length;
  std::shared_ptr<RowPicks> picks;

  struct Parts {
    std::vector<int64_t> rows;  // of X
    LodLevel level{0};          // offsets of the parts
  };
  // Errors: rejects what the CPU kernel reports.
  [[nodiscard]] StatusOr<Parts> parts(const KernelContext& ctx, const Tensor& from) const {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const first, needed_here(ctx, offset, "Offset"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const size, needed_here(ctx, length, "Length"));
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, innermost_here(from));
    std::vector<int64_t> begin;
    std::vector<int64_t> count;
    MILLRACE_RETURN_IF_ERROR(read_ids(*memory, *first, begin));
    MILLRACE_RETURN_IF_ERROR(read_ids(*memory, *size, count));
    if (begin.size() + 1 != offsets.size() || count.size() != begin.size())
      return refuse("Offset and Length for {} sequences", offsets.size() - 1);
    Parts parts;
    for (size_t i = 0; i < begin.size(); ++i) {
      if (begin[i] < 0 || count[i] < 0 || begin[i] + count[i] > offsets[i + 1] - offsets[i])
        return refuse("rows [{}, {}) of sequence {}", begin[i], begin[i] + count[i], i);
      for (int64_t r = 0; r < count[i]; ++r) parts.rows.push_back(offsets[i] + begin[i] + r);
      parts.level.push_back(parts.level.back() + count[i]);
    }
    return parts;
  }
};
GpuSlice gpu_slice_of(const KernelSetup& op) {
  Memory& memory = memory_of(op);
  return {&memory, op.input("X"), op.input("Offset"), op.input("Length"),
          std::make_shared<RowPicks>(memory)};
}

StatusOr<Kernel> gpu_slice_rows(const KernelSetup& op) {
  return Kernel(
      [slice = gpu_slice_of(op), out = op.output("Out")](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, slice.x, "X"));
        MILLRACE_ASSIGN_OR_RETURN(GpuSlice::Parts parts, slice.parts(ctx, *from));
        Tensor& to = ctx.out(out);
        if (is_same_memory(to, *from)) return refuse("Out shares memory with X");
        Dims dims(from->dims().begin(), from->dims().end());
        dims[0] = parts.level.back();
        MILLRACE_RETURN_IF_ERROR(
            resize_resident(to, from->dtype(), dims, *slice.memory, "rows of sequences"));
        to.set_lod(kernels::with_last_level(from->lod(), std::move(parts.level)));
        return slice.picks->run(parts.rows, from->raw(), row_bytes_of(*from), to.raw());
      });
}

StatusOr<Kernel> gpu_slice_rows_grad(const KernelSetup& op) {
  return Kernel(
      [slice = gpu_slice_of(op), args = MovedGradientArgs(op)](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const MovedGradient g, args.find(ctx));
        if (g.to == nullptr) return Ok();
        MILLRACE_ASSIGN_OR_RETURN(const GpuSlice::Parts parts, slice.parts(ctx, *g.x));
        const int64_t row = row_bytes_of(*g.x);
        if (g.dout->bytes() != parts.level.back() * row)
          return refuse("Out@GRAD {}", describe(*g.dout));
        std::vector<int64_t> rows(static_cast<size_t>(g.x->dim(0)), -1);
        for (size_t i = 0; i < parts.rows.size(); ++i)
          rows[static_cast<size_t>(parts.rows[i])] = static_cast<int64_t>(i);
        g.to->set_lod(g.x->lod());
        return slice.picks->run(rows, g.dout->raw(), row, g.to->raw());
      });
}

StatusOr<Kernel> gpu_lod_reset(const KernelSetup& op) {
  return Kernel([&memory = memory_of(op), x = op.input("X"), y = op.input("Y"),
                 out = op.output("Out"),
                 append = op.attr<bool>("append")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    Tensor& to = ctx.out(out);
    Lod lod = to.lod();
    const Tensor* const given = ctx.find_in(y);
    if (given != nullptr && given->lod().empty()) {
      std::vector<int64_t> offsets;
      MILLRACE_RETURN_IF_ERROR(read_ids(memory, *given, offsets));
      std::vector<LodLevel> levels;
      if (append) levels = from->lod().levels();
      levels.emplace_back(offsets.begin(), offsets.end());
      lod = Lod(std::move(levels));
    }
    if (Status good = lod.check(from->rank() == 0 ? 1 : from->dim(0)); !good.ok())
      return refuse("{}", good.message());
    MILLRACE_RETURN_IF_ERROR(copy_elements(memory.device(), *from, to));
    to.set_lod(std::move(lod));
    return Ok();
  });
}

}  // namespace
}  // namespace moved_rows

void add_sequence_moves(KernelRegistry& registry) {
  using namespace moved_rows;
  registry.add("sequence_concat", gpu_concat);
  registry.add("sequence_concat_grad", gpu_concat_grad);
  registry.add("sequence_reverse", gpu_reverse);
  registry.add("sequence_reshape", gpu_reshape_rows);
  registry.add("sequence_reshape_grad", gpu_reshaped_grad);
  registry.add("sequence_slice", gpu_slice_rows);
  registry.add("sequence_slice_grad", gpu_slice_rows_grad);
  registry.add("lod_reset", gpu_lod_reset);
  registry.add("lod_reset_grad", gpu_reshaped_grad);
}

}  // namespace millrace::gpu
