#include <memory>

#include "kernels/cpu/merge_rows.h"
#include "kernels/gpu/ops/row_picks.h"
#include "kernels/registry.h"

// Repeats rows or sequences of X, as often as the LoD entries of Y are long.
namespace millrace::gpu {
namespace expanded_rows {
namespace {

struct GpuExpansion {
  int32_t ref_level;  // LoD level of Y; -1: the last
  bool by_rows;       // repeats rows of X, not its sequences

  // The row of X for each row of the result. Errors: rejects what does not fit.
  [[nodiscard]] StatusOr<std::vector<int64_t>> rows(const Tensor& x, const Tensor& y) const {
    const size_t levels = y.lod().size();
    if (levels == 0 || x.rank() == 0 ||
        (ref_level >= 0 && static_cast<size_t>(ref_level) >= levels))
      return refuse("Y {} with {} LoD levels", describe(y), levels);
    const LodLevel& level =
        y.lod().level(ref_level < 0 ? levels - 1 : static_cast<size_t>(ref_level));
    llvm::ArrayRef<int64_t> offsets;
    if (!by_rows && !x.lod().empty()) {
      MILLRACE_ASSIGN_OR_RETURN(offsets, innermost_here(x));
    }
    const int64_t found = offsets.empty() ? x.dim(0) : static_cast<int64_t>(offsets.size()) - 1;
    if (found != static_cast<int64_t>(level.size()) - 1)
      return refuse("{} sequences for {}", found, level.size() - 1);
    std::vector<int64_t> rows;
    for (size_t i = 0; i + 1 < level.size(); ++i) {
      const int64_t begin = offsets.empty() ? static_cast<int64_t>(i) : offsets[i];
      const int64_t end = offsets.empty() ? begin + 1 : offsets[i + 1];
      for (int64_t copy = level[i]; copy < level[i + 1]; ++copy) {
        for (int64_t r = begin; r < end; ++r) rows.push_back(r);
      }
    }
    return rows;
  }
};

Kernel forward(const KernelSetup& op, GpuExpansion expansion) {
  return [x = op.input("X"), y = op.input("Y"), out = op.output("Out"), expansion,
          picks = std::make_shared<RowPicks>(memory_of(op))](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const other, needed_here(ctx, y, "Y"));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, expansion.rows(*from, *other));
    Tensor& to = ctx.out(out);
    const int64_t row = row_bytes_of(*from);
    if (to.dtype() != from->dtype() || is_same_memory(to, *from) ||
        to.bytes() != static_cast<int64_t>(rows.size()) * row)
      return refuse("Out {}", describe(to));
    return picks->run(rows, from->raw(), row, to.raw());
  };
}

Kernel backward(const KernelSetup& op, GpuExpansion expansion) {
  return [args = MovedGradientArgs(op), y = op.input("Y"), expansion,
          picks = std::make_shared<RowPicks>(memory_of(op))](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const MovedGradient g, args.find(ctx));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const other, needed_here(ctx, y, "Y"));
    if (g.to == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(all_floats({g.x}));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, expansion.rows(*g.x, *other));
    const int64_t width = kernels::row_width(*g.x);
    if (g.dout->numel() != static_cast<int64_t>(rows.size()) * width)
      return refuse("Out@GRAD {}", describe(*g.dout));
    g.to->set_lod(g.x->lod());
    return picks->add(rows, floats(g.dout), g.x->dim(0), width, floats(*g.to));
  };
}

StatusOr<Kernel> gpu_expand_sequences(const KernelSetup& op) {
  return forward(op, {op.attr<int32_t>("ref_level"), false});
}
StatusOr<Kernel> gpu_expand_sequences_grad(const KernelSetup& op) {
  return backward(op, {op.attr<int32_t>("ref_level"), false});
}
StatusOr<Kernel> gpu_expand_rows(const KernelSetup& op) {
  return forward(op, {0, true});
}
StatusOr<Kernel> gpu_expand_rows_grad(const KernelSetup& op) {
  return backward(op, {0, true});
}

}  // namespace
}  // namespace expanded_rows

void add_sequence_expand(KernelRegistry& registry) {
  using namespace expanded_rows;
  registry.add("sequence_expand", gpu_expand_sequences);
  registry.add("sequence_expand_grad", gpu_expand_sequences_grad);
  registry.add("sequence_expand_as", gpu_expand_rows);
  registry.add("sequence_expand_as_grad", gpu_expand_rows_grad);
}

}  // namespace millrace::gpu
