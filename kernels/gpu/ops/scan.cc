#include "kernels/gpu/functors/scan.h"

#include <algorithm>

#include "kernels/cpu/extent.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

// cumsum; its gradient is the running sum from the other end.
namespace millrace::gpu {
namespace {

// Numbers of a running sum.
struct ScanSettings {
  int64_t axis;
  bool flatten;
  bool exclusive;
  bool reverse;
};

template <typename T>
Status scan_of(Memory& memory, const kernels::Extent& e, const ScanSettings& s, const Tensor& x,
               Tensor& out) {
  constexpr int64_t kChunk = 256;
  constexpr int64_t kMostChunks = 1024;
  RunningSum<T> sum{};
  sum.x = reinterpret_cast<const T*>(x.raw());
  sum.out = reinterpret_cast<T*>(out.raw());
  sum.size = e.count;
  sum.inner = e.inner;
  sum.chunk = std::max(kChunk, (e.count + kMostChunks - 1) / kMostChunks);
  sum.chunks = (e.count + sum.chunk - 1) / sum.chunk;
  sum.exclusive = s.exclusive;
  sum.reverse = s.reverse;
  const int64_t parts = e.outer * e.inner * sum.chunks;
  if (sum.chunks == 1) return each(memory.device(), sum, parts);
  MILLRACE_ASSIGN_OR_RETURN(
      const std::shared_ptr<Block> totals,
      memory.allocate(parts * static_cast<int64_t>(sizeof(T)), "parts of running sums"));
  sum.totals = reinterpret_cast<T*>(totals->data());
  sum.counts = true;
  MILLRACE_RETURN_IF_ERROR(each(memory.device(), sum, parts));
  sum.counts = false;
  return each(memory.device(), sum, parts);
}

StatusOr<Kernel> running_sum(const KernelSetup& op, const char* in, const char* out_slot,
                             bool backwards) {
  return Kernel([&memory = memory_of(op), in, backwards, x = op.input(in),
                 out = op.output(out_slot),
                 s = ScanSettings{
                     op.attr<int32_t>("axis"), op.attr<bool>("flatten"), op.attr<bool>("exclusive"),
                     op.attr<bool>("reverse") != backwards}](const KernelContext& ctx) -> Status {
    Tensor* const to = ctx.find_out(out);
    if (to == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, in));
    if (to->dtype() != from->dtype() || to->numel() != from->numel() || from->numel() == 0)
      return refuse("{} becomes {}", describe(*from), describe(*to));
    // a gradient has the dims of X, which Out lacks if it was flattened
    const auto dims = backwards ? to->dims() : from->dims();
    kernels::Extent extent{1, from->numel(), 1};
    if (!s.flatten) {
      StatusOr<kernels::Extent> found = kernels::extent_of(dims, s.axis, "axis");
      if (!found.ok()) return refuse("{}", found.status().message());
      extent = *found;
    }
    switch (from->dtype()) {
      case DType::kFloat32:
        return scan_of<float>(memory, extent, s, *from, *to);
      case DType::kFloat64:
        return scan_of<double>(memory, extent, s, *from, *to);
      case DType::kInt32:
        return scan_of<int32_t>(memory, extent, s, *from, *to);
      case DType::kInt64:
        return scan_of<int64_t>(memory, extent, s, *from, *to);
      default:
        return refuse("the GPU kernel does not add {}", describe(*from));
    }
  });
}

StatusOr<Kernel> gpu_cumsum(const KernelSetup& op) {
  return running_sum(op, "X", "Out", /*backwards=*/false);
}
StatusOr<Kernel> gpu_cumsum_grad(const KernelSetup& op) {
  return running_sum(op, "Out@GRAD", "X@GRAD", /*backwards=*/true);
}

}  // namespace

void add_scan(KernelRegistry& registry) {
  registry.add("cumsum", gpu_cumsum);
  registry.add("cumsum_grad", gpu_cumsum_grad);
}

}  // namespace millrace::gpu
