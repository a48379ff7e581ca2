#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/cpu/embedding/ids.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/nest.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Looks up rows of tables by id and pools them sequence by sequence, without storing the rows or
// their gradients one by one. Handles one table, or several tables whose results are adjacent
// columns.
namespace millrace::kernels {
namespace pooled_kernels {
namespace {

enum class Combiner { kSum, kAverage, kSqrt };

struct PooledSettings {
  explicit PooledSettings(const KernelSetup& op)
      : padding(op.attr<int64_t>("padding_idx")),
        pad_value(op.attr<float>("pad_value")),
        sparse(op.attr<bool>("is_sparse")) {
    const auto name = op.attr<std::string>("combiner");
    combiner = name == "average" ? Combiner::kAverage
               : name == "sqrt"  ? Combiner::kSqrt
                                 : Combiner::kSum;
  }

  Combiner combiner;
  int64_t padding;
  float pad_value;  ///< result for an empty sequence
  bool sparse;
};

// Factor of a sum over that many rows.
template <typename T>
T factor(Combiner combiner, int64_t rows) {
  if (combiner == Combiner::kAverage) return 1 / static_cast<T>(rows);
  return combiner == Combiner::kSqrt ? 1 / std::sqrt(static_cast<T>(rows)) : T(1);
}

// The ids of one feature slot, checked against their table.
struct Slot {
  const Tensor* table = nullptr;
  const Tensor* ids = nullptr;
  llvm::ArrayRef<int64_t> offsets;
  int64_t each = 1;  ///< ids per row; their results are adjacent

  [[nodiscard]] int64_t sequences() const { return static_cast<int64_t>(offsets.size()) - 1; }
  [[nodiscard]] int64_t width() const { return table->dim(1); }
  [[nodiscard]] int64_t columns() const { return each * width(); }
  /// Minimum number of sequences that justifies another thread.
  [[nodiscard]] int64_t grain() const {
    const int64_t elements = ids->numel() * std::max<int64_t>(width(), 1);
    return std::max<int64_t>(
        1, kGrain / std::max<int64_t>(1, elements / std::max<int64_t>(1, sequences())));
  }
};

StatusOr<Slot> slot_of(const KernelContext& ctx, ArgIndex w, ArgIndex ids, int64_t padding) {
  Slot slot;
  MILLRACE_ASSIGN_OR_RETURN(slot.table, needed(ctx, w, "W"));
  MILLRACE_ASSIGN_OR_RETURN(slot.ids, needed(ctx, ids, "Ids"));
  if (slot.table->rank() != 2)
    return ctx.error("W must be a matrix, found {}", describe(*slot.table));
  MILLRACE_ASSIGN_OR_RETURN(slot.offsets, sequences_of(*slot.ids, "Ids"));
  const int64_t rows = slot.offsets.back();
  slot.each = rows == 0 ? 1 : slot.ids->numel() / rows;
  MILLRACE_RETURN_IF_ERROR(with_index(*slot.ids, "Ids", [&](const auto* at) -> Status {
    return check_ids(at, slot.ids->numel(), slot.table->dim(0), padding);
  }));
  return slot;
}

// A range of columns of a matrix.
template <typename T>
struct PooledColumns {
  T* first;
  int64_t stride;  ///< distance between rows

  [[nodiscard]] T* row(int64_t i) const { return first + i * stride; }
};

// Pools the table rows of count ids, which are `step` elements apart, into one row.
template <typename T, typename I>
void pool_rows(const T* table, int64_t width, int64_t padding, const I* ids, int64_t step,
               int64_t count, T scale, T* __restrict out) {
  constexpr int64_t kAhead = 8;
  bool first = true;
  for (int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count && ids[(i + kAhead) * step] >= 0)
      __builtin_prefetch(table + static_cast<int64_t>(ids[(i + kAhead) * step]) * width);
    const auto id = static_cast<int64_t>(ids[i * step]);
    if (padding >= 0 && id == padding) continue;
    const T* const from = table + id * width;
    if (first) {
      std::copy_n(from, width, out);
    } else {
      for (int64_t k = 0; k < width; ++k) out[k] += from[k];
    }
    first = false;
  }
  if (first) std::fill_n(out, width, T(0));
  if (scale == 1) return;
  for (int64_t k = 0; k < width; ++k) out[k] *= scale;
}

template <typename T>
Status pool_slot(const KernelContext& ctx, const PooledSettings& settings, const Slot& slot,
                 PooledColumns<T> out) {
  const int64_t width = slot.width();
  return with_index(*slot.ids, "Ids", [&](const auto* ids) -> Status {
    ctx.device().parallel_for(slot.sequences(), slot.grain(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = slot.offsets[static_cast<size_t>(i)];
        const int64_t count = slot.offsets[static_cast<size_t>(i) + 1] - row;
        if (count == 0) {
          std::fill_n(out.row(i), slot.columns(), static_cast<T>(settings.pad_value));
          continue;
        }
        const T scale = factor<T>(settings.combiner, count);
        for (int64_t j = 0; j < slot.each; ++j)
          pool_rows(slot.table->data<T>(), width, settings.padding, ids + row * slot.each + j,
                    slot.each, count, scale, out.row(i) + j * width);
      }
    });
    return Ok();
  });
}

// Calls fn(id number, gradient of the row, factor) for every id, in ascending order.
template <typename T, typename Fn>
void each_gradient(const PooledSettings& settings, const Slot& slot, PooledColumns<const T> dout,
                   Fn&& fn) {
  for (int64_t i = 0; i < slot.sequences(); ++i) {
    const int64_t begin = slot.offsets[static_cast<size_t>(i)];
    const int64_t end = slot.offsets[static_cast<size_t>(i) + 1];
    if (begin == end) continue;
    const T scale = factor<T>(settings.combiner, end - begin);
    for (int64_t n = begin * slot.each; n < end * slot.each; ++n)
      fn(n, dout.row(i) + n % slot.each * slot.width(), scale);
  }
}

template <typename T>
Status sparse_gradient(const PooledSettings& settings, const Slot& slot,
                       PooledColumns<const T> dout, SelectedRows& to) {
  const int64_t width = slot.width();
  to.height = slot.table->dim(0);
  to.rows.resize(static_cast<size_t>(slot.ids->numel()));
  MILLRACE_RETURN_IF_ERROR(size_output(to.value, kDTypeOf<T>, {slot.ids->numel(), width}));
  T* const values = to.value.data<T>();
  return with_index(*slot.ids, "Ids", [&](const auto* ids) -> Status {
    std::copy_n(ids, slot.ids->numel(), to.rows.begin());
    each_gradient<T>(settings, slot, dout, [&](int64_t n, const T* from, T scale) {
      T* const row = values + n * width;
      for (int64_t k = 0; k < width; ++k) row[k] = from[k] * scale;
    });
    return Ok();
  });
}

template <typename T>
Status dense_gradient(const KernelContext& ctx, const PooledSettings& settings, const Slot& slot,
                      PooledColumns<const T> dout, Tensor& to) {
  const int64_t width = slot.width();
  MILLRACE_RETURN_IF_ERROR(size_output(to, kDTypeOf<T>, slot.table->dims()));
  fill_zero(ctx.device(), to);
  T* const table = to.data<T>();
  return with_index(*slot.ids, "Ids", [&](const auto* ids) -> Status {
    each_gradient<T>(settings, slot, dout, [&](int64_t n, const T* from, T scale) {
      const auto id = static_cast<int64_t>(ids[n]);
      if (settings.padding >= 0 && id == settings.padding) return;
      T* const row = table + id * width;
      for (int64_t k = 0; k < width; ++k) row[k] += from[k] * scale;
    });
    return Ok();
  });
}

// A range of columns of the result: the pooled rows of a table, or a copied matrix.
struct PooledPart {
  bool pooled = true;
  ArgIndex source;  ///< the table, or the matrix
  ArgIndex ids;
  ArgIndex grad;  ///< gradient of the source, in the gradient op; may be absent
};

// The parts in order. Errors: attribute 'parts' does not fit the slots.
StatusOr<std::vector<PooledPart>> parts_of(const KernelSetup& op) {
  std::vector<PooledPart> parts;
  size_t tables = 0;
  size_t matrices = 0;
  for (const int32_t pooled : op.attr<std::vector<int32_t>>("parts")) {
    PooledPart part;
    part.pooled = pooled != 0;
    const char* const slot = part.pooled ? "W" : "X";
    const size_t k = part.pooled ? tables++ : matrices++;
    part.source = op.input(slot, k);
    if (part.pooled) part.ids = op.input("Ids", k);
    part.grad = op.output(std::string(slot) + "@GRAD", k);
    if (!part.source || (part.pooled && !part.ids))
      return op.error("attribute 'parts' names {} {}, which does not exist", slot, k);
    parts.push_back(part);
  }
  if (parts.empty()) return op.error("attribute 'parts' is empty");
  return parts;
}

// Calls fn(part, slot or null, first column, columns) for every part. Errors: those of reading the
// parts; a part without `rows` rows; columns that do not add up to `width`; those of fn.
template <typename Fn>
Status each_part(const KernelContext& ctx, const PooledSettings& settings,
                 llvm::ArrayRef<PooledPart> parts, const Tensor& whole, Fn&& fn) {
  int64_t column = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const PooledPart& part = parts[i];
    Slot slot;
    int64_t rows = 0;
    int64_t columns = 0;
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const source, needed(ctx, part.source, "X or W"));
    if (part.pooled) {
      MILLRACE_ASSIGN_OR_RETURN(slot, slot_of(ctx, part.source, part.ids, settings.padding));
      rows = slot.sequences();
      columns = slot.columns();
    } else if (source->rank() == 2) {
      rows = source->dim(0);
      columns = source->dim(1);
    }
    if (whole.rank() != 2 || rows != whole.dim(0) || column + columns > whole.dim(1) ||
        source->dtype() != whole.dtype())
      return ctx.error("part {}, {} rows of {}, does not fit the result {}", i, rows,
                       describe(*source), describe(whole));
    MILLRACE_RETURN_IF_ERROR(fn(part, slot, column, columns));
    column += columns;
  }
  if (whole.rank() == 2 && column == whole.dim(1)) return Ok();
  return ctx.error("the parts have {} columns, and the result is {}", column, describe(whole));
}

// Copies a range of columns of the result to a matrix, or the other way round.
void copy_columns(const KernelContext& ctx, const Tensor& whole, int64_t columns, std::byte* to,
                  int64_t to_stride, const std::byte* from, int64_t from_stride) {
  StridedBox box;
  box.push(whole.dim(0), to_stride, from_stride);
  box.push(columns, 1, 1);
  copy_strided(ctx.device(), dtype_size(whole.dtype()), box, to, from);
}

StatusOr<Kernel> pooled(const KernelSetup& op, std::vector<PooledPart> parts) {
  return Kernel([parts = std::move(parts), settings = PooledSettings(op),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    Tensor& whole = ctx.out(out);
    return dispatch<FloatTypes>(whole.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      return each_part(
          ctx, settings, parts, whole,
          [&](const PooledPart& part, const Slot& slot, int64_t column, int64_t columns) -> Status {
            T* const first = whole.data<T>() + column;
            const int64_t stride = whole.dim(1);
            if (part.pooled) return pool_slot<T>(ctx, settings, slot, {first, stride});
            copy_columns(ctx, whole, columns, reinterpret_cast<std::byte*>(first), stride,
                         ctx.in(part.source).raw(), columns);
            return Ok();
          });
    });
  });
}

template <typename T>
Status part_gradient(const KernelContext& ctx, const PooledSettings& settings,
                     const PooledPart& part, const Slot& slot, const Tensor& whole, int64_t column,
                     int64_t columns) {
  if (!part.grad) return Ok();
  const PooledColumns<const T> dout{whole.data<T>() + column, whole.dim(1)};
  if (part.pooled && settings.sparse)
    return sparse_gradient<T>(settings, slot, dout, ctx.out_value(part.grad).as<SelectedRows>());
  if (part.pooled) return dense_gradient<T>(ctx, settings, slot, dout, ctx.out(part.grad));
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, part.grad, ctx.in(part.source)));
  copy_columns(ctx, whole, columns, to->raw(), columns,
               reinterpret_cast<const std::byte*>(dout.first), dout.stride);
  return Ok();
}

StatusOr<Kernel> pooled_grad(const KernelSetup& op, std::vector<PooledPart> parts) {
  return Kernel([parts = std::move(parts), settings = PooledSettings(op),
                 dout = op.input("Out@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const whole, needed(ctx, dout, "Out@GRAD"));
    return dispatch<FloatTypes>(whole->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      return each_part(
          ctx, settings, parts, *whole,
          [&](const PooledPart& part, const Slot& slot, int64_t column, int64_t columns) {
            return part_gradient<T>(ctx, settings, part, slot, *whole, column, columns);
          });
    });
  });
}

std::vector<PooledPart> one_part(const KernelSetup& op) {
  return {{true, op.input("W"), op.input("Ids"), op.output("W@GRAD")}};
}

StatusOr<Kernel> one(const KernelSetup& op) {
  return pooled(op, one_part(op));
}
StatusOr<Kernel> one_grad(const KernelSetup& op) {
  return pooled_grad(op, one_part(op));
}
StatusOr<Kernel> many(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(std::vector<PooledPart> parts, parts_of(op));
  return pooled(op, std::move(parts));
}
StatusOr<Kernel> many_grad(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(std::vector<PooledPart> parts, parts_of(op));
  return pooled_grad(op, std::move(parts));
}

}  // namespace
}  // namespace pooled_kernels

void add_embedding_pooled(KernelRegistry& registry) {
  using namespace pooled_kernels;
  registry.add("fused_embedding_seq_pool", one);
  registry.add("fused_embedding_seq_pool_grad", one_grad);
  registry.add("fused_embedding_seq_pool_concat", many);
  registry.add("fused_embedding_seq_pool_concat_grad", many_grad);
}

}  // namespace millrace::kernels
