#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Each sequence of X is one matrix [channels, rows, columns]. For every row and channel, the k
// largest values are summed and divided by k, for several k.
namespace millrace::kernels {
namespace topk_pooling_kernels {
namespace {

struct TopkPoolingSettings {
  std::vector<int64_t> ks;
  int64_t most = 0;  ///< largest of ks
  int64_t channels = 1;
};

TopkPoolingSettings settings_of(const KernelSetup& op) {
  TopkPoolingSettings s;
  s.ks = op.attr<std::vector<int64_t>>("topks");
  s.most = s.ks.empty() ? 0 : *std::max_element(s.ks.begin(), s.ks.end());
  s.channels = op.attr<int32_t>("channel_num");
  return s;
}

struct Offsets {
  llvm::ArrayRef<int64_t> x;
  llvm::ArrayRef<int64_t> rows;
  llvm::ArrayRef<int64_t> columns;

  // The size of matrix i.
  [[nodiscard]] int64_t row_count(size_t i) const { return rows[i + 1] - rows[i]; }
  [[nodiscard]] int64_t column_count(size_t i) const { return columns[i + 1] - columns[i]; }
};

StatusOr<Offsets> offsets_of(const KernelContext& ctx, const Tensor& x, const Tensor& row,
                             const Tensor& column, int64_t channels) {
  Offsets o;
  MILLRACE_ASSIGN_OR_RETURN(o.x, sequences_of(x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(o.rows, sequences_of(row, "ROW"));
  MILLRACE_ASSIGN_OR_RETURN(o.columns, sequences_of(column, "COLUMN"));
  if (o.rows.size() != o.x.size() || o.columns.size() != o.x.size() || x.numel() != o.x.back())
    return ctx.error(
        "X, ROW and COLUMN must have the same number of sequences, found {}, {} and {}",
        o.x.size() - 1, o.rows.size() - 1, o.columns.size() - 1);
  for (size_t i = 0; i + 1 < o.x.size(); ++i) {
    const int64_t rows = o.row_count(i);
    const int64_t columns = o.column_count(i);
    if (o.x[i + 1] - o.x[i] != channels * rows * columns)
      return ctx.error("sequence {} of X has {} elements, expected {} channels of {} by {}", i,
                       o.x[i + 1] - o.x[i], channels, rows, columns);
  }
  return o;
}

// Calls body(first element of a row of a channel, columns, position of its results) for each row.
template <typename Body>
void each_row(const Offsets& o, int64_t channels, Body&& body) {
  for (size_t i = 0; i + 1 < o.x.size(); ++i) {
    const int64_t rows = o.row_count(i);
    const int64_t columns = o.column_count(i);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < channels; ++c)
        body(o.x[i] + (c * rows + r) * columns, columns, (o.rows[i] + r) * channels + c);
    }
  }
}

StatusOr<Kernel> topk_pooling(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex row = op.input("ROW");
  const ArgIndex column = op.input("COLUMN");
  const ArgIndex out = op.output("Out");
  const ArgIndex pos = op.output("pos");
  const TopkPoolingSettings s = settings_of(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    MILLRACE_ASSIGN_OR_RETURN(const Offsets o,
                              offsets_of(ctx, from, ctx.in(row), ctx.in(column), s.channels));
    const auto kinds = static_cast<int64_t>(s.ks.size());
    const int64_t results = o.rows.back() * s.channels;
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(to.resize(from.dtype(), {o.rows.back(), s.channels * kinds}));
    Tensor* const places = ctx.find_out(pos);
    if (places != nullptr)
      MILLRACE_RETURN_IF_ERROR(places->resize(DType::kInt32, {results * s.most}));
    std::vector<int32_t> order;
    return dispatch<FloatTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      each_row(o, s.channels, [&](int64_t begin, int64_t columns, int64_t place) {
        const T* const values = from.data<T>() + begin;
        const int64_t found = std::min(columns, s.most);
        order.resize(static_cast<size_t>(columns));
        std::iota(order.begin(), order.end(), 0);
        // ties are ordered by column, so that results do not depend on the library
        std::partial_sort(order.begin(), order.begin() + found, order.end(),
                          [&](int32_t a, int32_t b) {
                            return values[a] > values[b] || (values[a] == values[b] && a < b);
                          });
        for (int64_t k = 0; k < kinds; ++k) {
          T sum = 0;
          for (int64_t j = 0; j < std::min(found, s.ks[static_cast<size_t>(k)]); ++j)
            sum += values[order[static_cast<size_t>(j)]];
          to.data<T>()[place * kinds + k] = sum / static_cast<T>(s.ks[static_cast<size_t>(k)]);
        }
        if (places == nullptr) return;
        int32_t* const kept = places->data<int32_t>() + place * s.most;
        std::copy_n(order.begin(), found, kept);
        std::fill(kept + found, kept + s.most, -1);
      });
      return Ok();
    });
  });
}

StatusOr<Kernel> topk_pooling_grad(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex row = op.input("ROW");
  const ArgIndex column = op.input("COLUMN");
  const ArgIndex pos = op.input("pos");
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  const TopkPoolingSettings s = settings_of(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!dx) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const rows, needed(ctx, row, "ROW"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const columns_of_all, needed(ctx, column, "COLUMN"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const places, needed(ctx, pos, "pos"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const Offsets o,
                              offsets_of(ctx, *from, *rows, *columns_of_all, s.channels));
    const auto kinds = static_cast<int64_t>(s.ks.size());
    const int64_t results = o.rows.back() * s.channels;
    if (places->numel() != results * s.most || places->dtype() != DType::kInt32 ||
        d->numel() != results * kinds || d->dtype() != from->dtype())
      return ctx.error("pos and Out@GRAD must have {} and {} elements, found {} and {}",
                       results * s.most, results * kinds, describe(*places), describe(*d));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, dx, *from));
    return dispatch<FloatTypes>(from->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      std::fill_n(to->data<T>(), to->numel(), T(0));
      Status status;
      each_row(o, s.channels, [&](int64_t begin, int64_t columns, int64_t place) {
        for (int64_t k = 0; k < kinds; ++k) {
          const int64_t wanted = s.ks[static_cast<size_t>(k)];
          const T share = d->data<T>()[place * kinds + k] / static_cast<T>(wanted);
          for (int64_t j = 0; j < wanted; ++j) {
            const int32_t at = places->data<int32_t>()[place * s.most + j];
            if (at >= columns) {
              status = ctx.error("pos names column {}, expected one in [0, {})", at, columns);
            } else if (at >= 0) {
              to->data<T>()[begin + at] += share;
            }
          }
        }
      });
      return status;
    });
  });
}

}  // namespace
}  // namespace topk_pooling_kernels

void add_sequence_topk_pooling(KernelRegistry& registry) {
  using namespace topk_pooling_kernels;
  registry.add("sequence_topk_avg_pooling", topk_pooling);
  registry.add("sequence_topk_avg_pooling_grad", topk_pooling_grad);
}

}  // namespace millrace::kernels
