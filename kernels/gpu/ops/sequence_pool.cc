#include <algorithm>
#include <memory>

#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/sequence/pool_rows.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/gpu/functors/sequence.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/ops/device_numbers.h"
#include "kernels/registry.h"

namespace millrace::gpu {
namespace {

Pooling pooling_of(const KernelSetup& op) {
  using kernels::SequencePool;
  switch (kernels::pool_of(op)) {
    case SequencePool::kSum:
      return Pooling::kSum;
    case SequencePool::kAverage:
      return Pooling::kAverage;
    case SequencePool::kSqrt:
      return Pooling::kSqrt;
    case SequencePool::kLast:
      return Pooling::kLast;
    case SequencePool::kFirst:
      return Pooling::kFirst;
    case SequencePool::kMax:
      break;
  }
  return Pooling::kMax;
}

// The sequences of X. Errors: rejects offsets that the CPU kernel reports.
struct PooledRows {
  llvm::ArrayRef<int64_t> offsets;
  int64_t width;
  [[nodiscard]] int64_t results() const {
    return (static_cast<int64_t>(offsets.size()) - 1) * width;
  }
};
StatusOr<PooledRows> pooled_rows(const Tensor& x) {
  StatusOr<llvm::ArrayRef<int64_t>> offsets = kernels::sequences_of(x, "X");
  if (!offsets.ok()) return refuse("{}", offsets.status().message());
  MILLRACE_RETURN_IF_ERROR(all_floats({&x}));
  const PooledRows rows{*offsets, kernels::row_width(x)};
  if (rows.width <= 0 || rows.results() >= int64_t{1} << 31) return refuse("X {}", describe(x));
  return rows;
}

StatusOr<Kernel> gpu_sequence_pool(const KernelSetup& op) {
  const Pooling pooling = pooling_of(op);
  return Kernel([&memory = memory_of(op), pooling, x = op.input("X"), out = op.output("Out"),
                 index = pooling == Pooling::kMax ? op.output("MaxIndex") : ArgIndex(),
                 pad = op.attr<float>("pad_value"),
                 device_offsets =
                     std::make_shared<DeviceNumbers>()](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const PooledRows rows, pooled_rows(*from));
    Tensor& to = ctx.out(out);
    Tensor* const rows_out = ctx.find_out(index);
    MILLRACE_RETURN_IF_ERROR(all_floats({&to}));
    if (to.numel() != rows.results() ||
        (rows_out != nullptr &&
         (rows_out->dtype() != DType::kInt32 || rows_out->numel() != to.numel())))
      return refuse("Out {}", describe(to));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const offsets,
                              device_offsets->get(memory, rows.offsets));
    return each(
        memory.device(),
        PoolSequence{floats(from), offsets, floats(to),
                     rows_out == nullptr ? nullptr : reinterpret_cast<int32_t*>(rows_out->raw()),
                     Divider(rows.width), pooling, pad},
        to.numel());
  });
}

StatusOr<Kernel> gpu_sequence_pool_grad(const KernelSetup& op) {
  const Pooling pooling = pooling_of(op);
  return Kernel([&memory = memory_of(op), pooling, x = op.input("X"), index = op.input("MaxIndex"),
                 dout = op.input("Out@GRAD"), dx = op.output("X@GRAD"),
                 device_offsets =
                     std::make_shared<DeviceNumbers>()](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatGradient found, float_gradient(ctx, x, "X", dout, dx));
    const auto [from, d, to] = found;
    if (to == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const PooledRows rows, pooled_rows(*from));
    if (d->numel() != rows.results() || d->raw() == to->raw())
      return refuse("Out@GRAD {}", describe(*d));
    const int32_t* chosen = nullptr;
    if (pooling == Pooling::kMax) {
      MILLRACE_ASSIGN_OR_RETURN(const Tensor* const places, needed_here(ctx, index, "MaxIndex"));
      if (places->dtype() != DType::kInt32 || places->numel() != d->numel())
        return refuse("MaxIndex {}", describe(*places));
      chosen = reinterpret_cast<const int32_t*>(places->raw());
    }
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const offsets,
                              device_offsets->get(memory, rows.offsets));
    return each(
        memory.device(),
        PoolSequenceGradient{floats(d), offsets, chosen, floats(to), Divider(rows.width), pooling},
        d->numel());
  });
}

}  // namespace

void add_sequence_pool(KernelRegistry& registry) {
  registry.add("sequence_pool", gpu_sequence_pool);
  registry.add("sequence_pool_grad", gpu_sequence_pool_grad);
}

}  // namespace millrace::gpu
