#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cpu/int_list.h"
#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

enum class SegmentKind : uint8_t { kSum, kMean, kMax, kMin };

SegmentKind segment_kind(const KernelSetup& op) {
  const auto name = op.attr<std::string>("pooltype");
  if (name == "MEAN") return SegmentKind::kMean;
  if (name == "MAX") return SegmentKind::kMax;
  return name == "MIN" ? SegmentKind::kMin : SegmentKind::kSum;
}

// Adjacent rows with the same id.
struct Segment {
  int64_t id;
  int64_t begin;
  int64_t end;
};

StatusOr<std::vector<Segment>> segments_of(const KernelContext& ctx, const Tensor& x,
                                           const Tensor& ids_tensor) {
  if (x.rank() == 0 || ids_tensor.numel() != x.dim(0))
    return ctx.error("SegmentIds must have an id for each row of X {}, found {}", describe(x),
                     describe(ids_tensor));
  if (x.dim(0) == 0) return ctx.error("X has no rows, found {}", describe(x));
  Ints ids;
  MILLRACE_RETURN_IF_ERROR(append_ints(ids_tensor, "SegmentIds", ids));
  std::vector<Segment> segments;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    const int64_t before = segments.empty() ? 0 : segments.back().id;
    if (ids[i] < before)
      return ctx.error(
          "SegmentIds has {} after {} at {}, expected non-negative ids in ascending order", ids[i],
          before, i);
    if (segments.empty() || ids[i] > before) segments.push_back({ids[i], row, row});
    segments.back().end = row + 1;
  }
  return segments;
}

template <typename T>
void pool_segment(SegmentKind kind, const T* rows, int64_t count, int64_t width, T* out) {
  std::copy_n(rows, width, out);
  for (int64_t r = 1; r < count; ++r) {
    const T* const row = rows + r * width;
    for (int64_t i = 0; i < width; ++i) {
      if (kind == SegmentKind::kMax) {
        out[i] = std::max(out[i], row[i]);
      } else if (kind == SegmentKind::kMin) {
        out[i] = std::min(out[i], row[i]);
      } else {
        out[i] += row[i];
      }
    }
  }
  if (kind != SegmentKind::kMean) return;
  for (int64_t i = 0; i < width; ++i) out[i] /= static_cast<T>(count);
}

StatusOr<Kernel> segment_pool(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex ids = op.input("SegmentIds");
  const ArgIndex out = op.output("Out");
  const ArgIndex counts = op.output("SummedIds");
  const SegmentKind kind = segment_kind(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<Segment> segments,
                              segments_of(ctx, from, ctx.in(ids)));
    const int64_t total = segments.back().id + 1;
    Dims dims(from.dims().begin(), from.dims().end());
    dims[0] = total;
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(to.resize(from.dtype(), dims));
    to.set_lod({});
    Tensor* const rows = kind == SegmentKind::kMean ? ctx.find_out(counts) : nullptr;
    if (rows != nullptr) MILLRACE_RETURN_IF_ERROR(rows->resize(from.dtype(), {total, 1}));
    return dispatch<FloatTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const int64_t width = row_width(from);
      std::fill_n(to.data<T>(), to.numel(), T(0));
      if (rows != nullptr) std::fill_n(rows->data<T>(), total, T(0));
      for (const Segment& s : segments) {
        pool_segment(kind, from.data<T>() + s.begin * width, s.end - s.begin, width,
                     to.data<T>() + s.id * width);
        if (rows != nullptr) rows->data<T>()[s.id] = static_cast<T>(s.end - s.begin);
      }
      return Ok();
    });
  });
}

// The gradient of a minimum or maximum goes to every row that has it, undivided.
StatusOr<Kernel> segment_pool_grad(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex ids = op.input("SegmentIds");
  const ArgIndex out = op.input("Out");
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  const SegmentKind kind = segment_kind(op);
  const bool extreme = kind == SegmentKind::kMax || kind == SegmentKind::kMin;
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!dx) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const numbers, needed(ctx, ids, "SegmentIds"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<Segment> segments,
                              segments_of(ctx, *from, *numbers));
    const Tensor* pooled = d;
    if (extreme) {
      MILLRACE_ASSIGN_OR_RETURN(pooled, needed(ctx, out, "Out"));
    }
    const int64_t width = row_width(*from);
    const int64_t count = (segments.back().id + 1) * width;
    if (d->dtype() != from->dtype() || pooled->dtype() != from->dtype() || d->numel() != count ||
        pooled->numel() != count)
      return ctx.error("Out {} and Out@GRAD {} must have {} rows like those of X {}",
                       describe(*pooled), describe(*d), segments.back().id + 1, describe(*from));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, dx, *from));
    return dispatch<FloatTypes>(from->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      for (const Segment& s : segments) {
        const T* const grad = d->data<T>() + s.id * width;
        const T* const best = pooled->data<T>() + s.id * width;
        const T share = kind == SegmentKind::kMean ? T(1) / static_cast<T>(s.end - s.begin) : T(1);
        for (int64_t r = s.begin; r < s.end; ++r) {
          const T* const row = from->data<T>() + r * width;
          T* const target = to->data<T>() + r * width;
          for (int64_t i = 0; i < width; ++i)
            target[i] = extreme && row[i] != best[i] ? T(0) : grad[i] * share;
        }
      }
      return Ok();
    });
  });
}

}  // namespace

/// segment_pool with its gradient.
void add_reduce_segment_pool(KernelRegistry& registry) {
  registry.add("segment_pool", segment_pool);
  registry.add("segment_pool_grad", segment_pool_grad);
}

}  // namespace millrace::kernels
