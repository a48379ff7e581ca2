#include <algorithm>
#include <cstring>

#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Repeats rows or sequences of X, as often as the LoD entries of Y are long.
namespace millrace::kernels {
namespace expand {
namespace {

// Calls body(first row of X, rows, copies) for each entry of the level.
template <typename Body>
void each_entry(llvm::ArrayRef<int64_t> level, llvm::ArrayRef<int64_t> x_offsets, Body&& body) {
  for (size_t i = 0; i + 1 < level.size(); ++i) {
    const int64_t begin = x_offsets.empty() ? static_cast<int64_t>(i) : x_offsets[i];
    const int64_t end = x_offsets.empty() ? begin + 1 : x_offsets[i + 1];
    body(begin, end - begin, level[i + 1] - level[i]);
  }
}

struct Expansion {
  llvm::ArrayRef<int64_t> level;
  llvm::ArrayRef<int64_t> x_offsets;  ///< empty: each row of X is a sequence
};

// What an op repeats: by a LoD level of Y (-1 for the last); sequences of X, or its rows.
struct ExpandRule {
  int32_t ref_level = 0;
  bool by_rows = false;
};

StatusOr<Expansion> expansion_of(const KernelContext& ctx, const Tensor& x, const Tensor& y,
                                 const ExpandRule& rule) {
  const int32_t ref_level = rule.ref_level;
  const size_t levels = y.lod().size();
  if (levels == 0) return ctx.error("Y must have LoD, found {} without LoD", describe(y));
  if (ref_level >= 0 && static_cast<size_t>(ref_level) >= levels)
    return ctx.error("attribute 'ref_level' is {}, but Y has {} LoD levels", ref_level, levels);
  Expansion e;
  e.level = y.lod().level(ref_level < 0 ? levels - 1 : static_cast<size_t>(ref_level));
  if (!rule.by_rows && !x.lod().empty()) {
    MILLRACE_ASSIGN_OR_RETURN(e.x_offsets, sequences_of(x, "X"));
  }
  const int64_t found =
      e.x_offsets.empty() ? x.dim(0) : static_cast<int64_t>(e.x_offsets.size()) - 1;
  if (found != static_cast<int64_t>(e.level.size()) - 1)
    return ctx.error("X must have {} sequences as the LoD of Y, found {}", e.level.size() - 1,
                     found);
  return e;
}

void expand_kernel(const Expansion& e, const Tensor& x, Tensor& out) {
  const auto row_bytes = row_width(x) * dtype_size(x.dtype());
  std::byte* to = out.raw();
  each_entry(e.level, e.x_offsets, [&](int64_t begin, int64_t rows, int64_t copies) {
    const auto bytes = static_cast<size_t>(rows * row_bytes);
    for (int64_t c = 0; c < copies; ++c) {
      if (bytes > 0) std::memcpy(to, x.raw() + begin * row_bytes, bytes);
      to += bytes;
    }
  });
}

template <typename T>
void collapse(const Expansion& e, const Tensor& dout, Tensor& dx) {
  const int64_t width = row_width(dx);
  const T* from = dout.data<T>();
  std::fill_n(dx.data<T>(), dx.numel(), T(0));
  each_entry(e.level, e.x_offsets, [&](int64_t begin, int64_t rows, int64_t copies) {
    T* const to = dx.data<T>() + begin * width;
    for (int64_t c = 0; c < copies; ++c) {
      for (int64_t i = 0; i < rows * width; ++i) to[i] += from[i];
      from += rows * width;
    }
  });
}

int64_t rows_of(const Expansion& e) {
  int64_t rows = 0;
  each_entry(e.level, e.x_offsets,
             [&](int64_t /*begin*/, int64_t count, int64_t copies) { rows += count * copies; });
  return rows;
}

Kernel forward(const KernelSetup& op, ExpandRule rule) {
  const ArgIndex x = op.input("X");
  const ArgIndex y = op.input("Y");
  const ArgIndex out = op.output("Out");
  return [=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Expansion e, expansion_of(ctx, ctx.in(x), ctx.in(y), rule));
    if (ctx.out(out).dim(0) != rows_of(e))
      return ctx.error("Out has {} rows, expected {}", ctx.out(out).dim(0), rows_of(e));
    expand_kernel(e, ctx.in(x), ctx.out(out));
    return Ok();
  };
}

Kernel backward(const KernelSetup& op, ExpandRule rule) {
  const ArgIndex x = op.input("X");
  const ArgIndex y = op.input("Y");
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  return [=](const KernelContext& ctx) -> Status {
    if (!dx) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const other, needed(ctx, y, "Y"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const Expansion e, expansion_of(ctx, *from, *other, rule));
    if (d->numel() != rows_of(e) * row_width(*from) || d->dtype() != from->dtype())
      return ctx.error("Out@GRAD must have {} rows of X {}, found {}", rows_of(e), describe(*from),
                       describe(*d));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, dx, *from));
    to->set_lod(from->lod());
    return dispatch<NumberTypes>(from->dtype(), [&](auto tag) -> Status {
      collapse<typename decltype(tag)::type>(e, *d, *to);
      return Ok();
    });
  };
}

StatusOr<Kernel> sequence_expand(const KernelSetup& op) {
  return forward(op, {op.attr<int32_t>("ref_level"), false});
}
StatusOr<Kernel> sequence_expand_grad(const KernelSetup& op) {
  return backward(op, {op.attr<int32_t>("ref_level"), false});
}
StatusOr<Kernel> sequence_expand_as(const KernelSetup& op) {
  return forward(op, {0, true});
}
StatusOr<Kernel> sequence_expand_as_grad(const KernelSetup& op) {
  return backward(op, {0, true});
}

}  // namespace
}  // namespace expand

void add_sequence_expand(KernelRegistry& registry) {
  using namespace expand;
  registry.add("sequence_expand", sequence_expand);
  registry.add("sequence_expand_grad", sequence_expand_grad);
  registry.add("sequence_expand_as", sequence_expand_as);
  registry.add("sequence_expand_as_grad", sequence_expand_as_grad);
}

}  // namespace millrace::kernels
