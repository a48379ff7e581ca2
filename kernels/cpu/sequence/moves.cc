#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/labels.h"
#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/registry.h"

// Ops that move rows between sequences, for any element type.
namespace millrace::kernels {
namespace moves {
namespace {

int64_t row_bytes(const Tensor& tensor) {
  return row_width(tensor) * dtype_size(tensor.dtype());
}

void copy_rows(const Tensor& from, int64_t from_row, Tensor& to, int64_t to_row, int64_t rows) {
  const int64_t bytes = row_bytes(from);
  if (rows * bytes == 0) return;
  std::memcpy(to.raw() + to_row * bytes, from.raw() + from_row * bytes,
              static_cast<size_t>(rows * bytes));
}

// Calls body(input, first row in it, first row in the joined tensor, rows) for each run of rows.
template <typename Body>
Status each_piece(const KernelContext& ctx, ArgRange x, Body&& body) {
  std::vector<llvm::ArrayRef<int64_t>> offsets;
  for (int32_t k = 0; k < x.count; ++k) {
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> found,
                              outer_sequences_of(ctx.in(x, k), "X"));
    offsets.push_back(found);
    if (found.size() != offsets.front().size())
      return ctx.error("all X must have the same number of sequences, found {} and {}",
                       offsets.front().size() - 1, found.size() - 1);
    if (row_bytes(ctx.in(x, k)) != row_bytes(ctx.in(x, 0)))
      return ctx.error("X must have rows alike, found {} and {}", describe(ctx.in(x, 0)),
                       describe(ctx.in(x, k)));
  }
  int64_t at = 0;
  for (size_t i = 0; i + 1 < offsets.front().size(); ++i) {
    for (int32_t k = 0; k < x.count; ++k) {
      const int64_t begin = offsets[static_cast<size_t>(k)][i];
      const int64_t rows = offsets[static_cast<size_t>(k)][i + 1] - begin;
      body(k, begin, at, rows);
      at += rows;
    }
  }
  return Ok();
}

StatusOr<Kernel> sequence_concat(const KernelSetup& op) {
  const ArgRange x = op.inputs("X");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    Tensor& to = ctx.out(out);
    return each_piece(ctx, x, [&](int32_t k, int64_t begin, int64_t at, int64_t rows) {
      copy_rows(ctx.in(x, k), begin, to, at, rows);
    });
  });
}

StatusOr<Kernel> sequence_concat_grad(const KernelSetup& op) {
  const ArgRange x = op.inputs("X");
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgRange dx = op.outputs("X@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, dout, "Out@GRAD"));
    int64_t rows_of_all = 0;
    for (int32_t k = 0; k < x.count; ++k) rows_of_all += ctx.in(x, k).dim(0);
    if (d->dim(0) != rows_of_all || row_bytes(*d) != row_bytes(ctx.in(x, 0)))
      return ctx.error("Out@GRAD must have the {} rows of all X, found {}", rows_of_all,
                       describe(*d));
    for (int32_t k = 0; k < dx.count; ++k) {
      if (ctx.has_out(dx, k)) ctx.out(dx, k).set_lod(ctx.in(x, k).lod());
    }
    return each_piece(ctx, x, [&](int32_t k, int64_t begin, int64_t at, int64_t rows) {
      if (k < dx.count && ctx.has_out(dx, k)) copy_rows(*d, at, ctx.out(dx, k), begin, rows);
    });
  });
}

// The order of the elements does not change, so one copy is enough; inference has set dims and LoD.
Status copy_elements(const KernelContext& ctx, const Tensor& from, Tensor& to) {
  if (from.bytes() != to.bytes())
    return ctx.error("found {}, expected as many elements as {}", describe(to), describe(from));
  if (from.bytes() > 0 && !to.shares_memory_with(from))
    std::memcpy(to.raw(), from.raw(), static_cast<size_t>(from.bytes()));
  return Ok();
}

StatusOr<Kernel> sequence_reshape(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, sequences_of(from, "X"));
    const int64_t width = row_width(ctx.out(out));
    for (const int64_t offset : offsets) {
      if (offset * row_width(from) % width != 0)
        return ctx.error("a sequence of X ends in the middle of a row of width {}: LoD {}", width,
                         from.lod().to_string());
    }
    return copy_elements(ctx, from, ctx.out(out));
  });
}

// Gradient with the elements of Out@GRAD and the shape and LoD of X.
StatusOr<Kernel> reshaped_grad(const KernelSetup& op) {
  return required_gradient(op, [=](const KernelContext& ctx, const GradientTensors& g) -> Status {
    return copy_elements(ctx, *g.from, *g.to);
  });
}

StatusOr<Kernel> sequence_reverse(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex y = op.output("Y");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    Tensor& to = ctx.out(y);
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, sequences_of(from, "X"));
    const int64_t bytes = row_bytes(from);
    const bool in_place = to.shares_memory_with(from);
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      const int64_t begin = offsets[i];
      const int64_t end = offsets[i + 1];
      for (int64_t r = begin; r < end; ++r) {
        const int64_t mirror = begin + end - 1 - r;
        if (!in_place) {
          copy_rows(from, mirror, to, r, 1);
        } else if (r < mirror) {
          std::swap_ranges(to.raw() + r * bytes, to.raw() + (r + 1) * bytes,
                           to.raw() + mirror * bytes);
        }
      }
    }
    return Ok();
  });
}

struct MovesParts {
  llvm::ArrayRef<int64_t> sequences;
  const int64_t* offset;
  const int64_t* length;
};

StatusOr<MovesParts> parts_of(const KernelContext& ctx, const Tensor& x, const Tensor& offset,
                              const Tensor& length) {
  MovesParts parts{};
  MILLRACE_ASSIGN_OR_RETURN(parts.sequences, sequences_of(x, "X"));
  const auto count = static_cast<int64_t>(parts.sequences.size()) - 1;
  if (offset.numel() != count || length.numel() != count)
    return ctx.error("Offset and Length must have one number for each of the {} sequences of X",
                     count);
  MILLRACE_ASSIGN_OR_RETURN(parts.offset, integers_of(ctx, offset, 0));
  MILLRACE_ASSIGN_OR_RETURN(parts.length, integers_of(ctx, length, 1));
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t rows = parts.sequences[at + 1] - parts.sequences[at];
    if (parts.offset[i] < 0 || parts.length[i] < 0 || parts.offset[i] + parts.length[i] > rows)
      return ctx.error("rows [{}, {}) of sequence {} are requested, which has {} rows",
                       parts.offset[i], parts.offset[i] + parts.length[i], i, rows);
  }
  return parts;
}

StatusOr<Kernel> sequence_slice(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex offset = op.input("Offset");
  const ArgIndex length = op.input("Length");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    MILLRACE_ASSIGN_OR_RETURN(const MovesParts parts,
                              parts_of(ctx, from, ctx.in(offset), ctx.in(length)));
    LodLevel level{0};
    for (size_t i = 0; i + 1 < parts.sequences.size(); ++i)
      level.push_back(level.back() + parts.length[i]);
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(resize_rows(to, from, level.back()));
    for (size_t i = 0; i + 1 < level.size(); ++i)
      copy_rows(from, parts.sequences[i] + parts.offset[i], to, level[i], parts.length[i]);
    to.set_lod(with_last_level(from.lod(), std::move(level)));
    return Ok();
  });
}

StatusOr<Kernel> sequence_slice_grad(const KernelSetup& op) {
  const ArgIndex offset = op.input("Offset");
  const ArgIndex length = op.input("Length");
  return required_gradient(op, [=](const KernelContext& ctx, const GradientTensors& g) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const begin, needed(ctx, offset, "Offset"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const size, needed(ctx, length, "Length"));
    MILLRACE_ASSIGN_OR_RETURN(const MovesParts parts, parts_of(ctx, *g.x, *begin, *size));
    g.to->set_lod(g.x->lod());
    if (g.to->bytes() > 0) std::memset(g.to->raw(), 0, static_cast<size_t>(g.to->bytes()));
    int64_t at = 0;
    for (size_t i = 0; i + 1 < parts.sequences.size(); ++i) at += parts.length[i];
    if (g.from->dim(0) != at || row_bytes(*g.from) != row_bytes(*g.x))
      return ctx.error("Out@GRAD must have {} rows of X {}, found {}", at, describe(*g.x),
                       describe(*g.from));
    at = 0;
    for (size_t i = 0; i + 1 < parts.sequences.size(); ++i) {
      copy_rows(*g.from, at, *g.to, parts.sequences[i] + parts.offset[i], parts.length[i]);
      at += parts.length[i];
    }
    return Ok();
  });
}

// Inference has set the LoD unless it comes from the elements of Y.
StatusOr<Kernel> lod_reset(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex y = op.input("Y");
  const ArgIndex out = op.output("Out");
  const bool append = op.attr<bool>("append");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    Lod lod = ctx.out(out).lod();
    const Tensor* const given = ctx.find_in(y);
    if (given != nullptr && given->lod().empty()) {
      MILLRACE_ASSIGN_OR_RETURN(const int64_t* const offsets, integers_of(ctx, *given, 0));
      std::vector<LodLevel> levels;
      if (append) levels = from.lod().levels();
      levels.emplace_back(offsets, offsets + given->numel());
      lod = Lod(std::move(levels));
    }
    MILLRACE_RETURN_IF_ERROR(lod.check(from.rank() == 0 ? 1 : from.dim(0)));
    MILLRACE_RETURN_IF_ERROR(copy_elements(ctx, from, ctx.out(out)));
    ctx.out(out).set_lod(std::move(lod));
    return Ok();
  });
}

}  // namespace
}  // namespace moves

void add_sequence_moves(KernelRegistry& registry) {
  using namespace moves;
  registry.add("sequence_concat", sequence_concat);
  registry.add("sequence_concat_grad", sequence_concat_grad);
  registry.add("sequence_reshape", sequence_reshape);
  registry.add("sequence_reshape_grad", reshaped_grad);
  registry.add("sequence_reverse", sequence_reverse);
  registry.add("sequence_slice", sequence_slice);
  registry.add("sequence_slice_grad", sequence_slice_grad);
  registry.add("lod_reset", lod_reset);
  registry.add("lod_reset_grad", reshaped_grad);
}

}  // namespace millrace::kernels
