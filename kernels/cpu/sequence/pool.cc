#include <algorithm>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/nest.h"
#include "kernels/cpu/sequence/pool_rows.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace pool_kernels {
namespace {

// Minimum number of sequences that justifies another thread.
int64_t grain_of(const Tensor& x, int64_t sequences) {
  const int64_t each = std::max<int64_t>(1, x.numel() / std::max<int64_t>(1, sequences));
  return std::max<int64_t>(1, kGrain / each);
}

StatusOr<Kernel> sequence_pool(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const SequencePool pool = pool_of(op);
  const ArgIndex index = pool == SequencePool::kMax ? op.output("MaxIndex") : ArgIndex{};
  const float pad = op.attr<float>("pad_value");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, sequences_of(from, "X"));
    const auto sequences = static_cast<int64_t>(offsets.size()) - 1;
    const int64_t width = row_width(from);
    Tensor* const rows = ctx.find_out(index);
    return dispatch<FloatTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      T* const to = ctx.out(out).data<T>();
      ctx.device().parallel_for(sequences, grain_of(from, sequences), [&](int64_t b, int64_t e) {
        for (int64_t i = b; i < e; ++i) {
          const auto at = static_cast<size_t>(i);
          pool_one(pool, from.data<T>(), offsets[at], offsets[at + 1], width, static_cast<T>(pad),
                   to + i * width, rows == nullptr ? nullptr : rows->data<int32_t>() + i * width);
        }
      });
      return Ok();
    });
  });
}

template <typename T>
Status spread_max(const KernelContext& ctx, const Tensor& dout, const Tensor& index, Tensor& dx) {
  const int64_t rows = dx.dim(0);
  const int64_t width = row_width(dx);
  const auto* const row = index.data<int32_t>();
  std::fill_n(dx.data<T>(), dx.numel(), T(0));
  for (int64_t i = 0; i < dout.numel(); ++i) {
    if (row[i] < 0) continue;
    if (row[i] >= rows)
      return ctx.error("MaxIndex names row {}, expected one in [0, {})", row[i], rows);
    dx.data<T>()[row[i] * width + i % width] += dout.data<T>()[i];
  }
  return Ok();
}

template <typename T>
void spread_one(SequencePool pool, const T* dout, int64_t rows, int64_t width, T* dx) {
  if (rows == 0) return;
  if (pool == SequencePool::kFirst || pool == SequencePool::kLast) {
    std::fill_n(dx, rows * width, T(0));
    std::copy_n(dout, width, pool == SequencePool::kFirst ? dx : dx + (rows - 1) * width);
    return;
  }
  const T scale = factor_pool<T>(pool, rows);
  for (int64_t r = 0; r < rows; ++r) {
    T* const to = dx + r * width;
    for (int64_t k = 0; k < width; ++k) to[k] = dout[k] * scale;
  }
}

StatusOr<Kernel> sequence_pool_grad(const KernelSetup& op) {
  const ArgIndex index = op.input("MaxIndex");
  const SequencePool pool = pool_of(op);
  return required_gradient(op, [=](const KernelContext& ctx, const GradientTensors& g) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, sequences_of(*g.x, "X"));
    const auto sequences = static_cast<int64_t>(offsets.size()) - 1;
    const int64_t width = row_width(*g.x);
    if (g.from->numel() != sequences * width || g.from->dtype() != g.x->dtype())
      return ctx.error("Out@GRAD must have one row per sequence, [{}, {}], found {}", sequences,
                       width, describe(*g.from));
    const Tensor* rows = nullptr;
    if (pool == SequencePool::kMax) {
      MILLRACE_ASSIGN_OR_RETURN(rows, needed(ctx, index, "MaxIndex"));
      if (rows->numel() != g.from->numel() || rows->dtype() != DType::kInt32)
        return ctx.error("MaxIndex must be i32 with the dims of Out@GRAD {}, found {}",
                         describe(*g.from), describe(*rows));
    }
    return dispatch<FloatTypes>(g.x->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      if (pool == SequencePool::kMax) return spread_max<T>(ctx, *g.from, *rows, *g.to);
      ctx.device().parallel_for(sequences, grain_of(*g.x, sequences), [&](int64_t b, int64_t e) {
        for (int64_t i = b; i < e; ++i) {
          const int64_t begin = offsets[static_cast<size_t>(i)];
          spread_one(pool, g.from->data<T>() + i * width,
                     offsets[static_cast<size_t>(i) + 1] - begin, width,
                     g.to->data<T>() + begin * width);
        }
      });
      return Ok();
    });
  });
}

}  // namespace
}  // namespace pool_kernels

void add_sequence_pool(KernelRegistry& registry) {
  using namespace pool_kernels;
  registry.add("sequence_pool", sequence_pool);
  registry.add("sequence_pool_grad", sequence_pool_grad);
}

}  // namespace millrace::kernels
