#include "kernels/gpu/ops/reduce.h"
#include "kernels/gpu/ops/totals.h"
#include "kernels/registry.h"

// Sums, means, extremes, products and norms over any dims, with their gradients.
namespace millrace::gpu {
namespace {

using Axes = std::vector<int64_t>;

// Empty: all dims.
StatusOr<Axes> read_axes(const KernelSetup& op) {
  if (op.def().find_attr("reduce_all") == nullptr) return Axes();  // mean and the like
  if (op.inputs("AxisTensor").count > 0 || op.inputs("AxisTensorList").count > 0)
    return refuse("axes given as tensors are read on the CPU");
  return op.attr<bool>("reduce_all") ? Axes() : op.attr<Axes>("dim");
}

template <typename Formula>
constexpr TotalRule kRuleOf = TotalRule::kSum;
template <>
constexpr TotalRule kRuleOf<MeanOf> = TotalRule::kMean;
template <>
constexpr TotalRule kRuleOf<SumOfSquares> = TotalRule::kSquares;
template <>
constexpr TotalRule kRuleOf<RootOfSquares> = TotalRule::kRoot;
template <>
constexpr TotalRule kRuleOf<SumOfMagnitudes> = TotalRule::kMagnitudes;
template <>
constexpr TotalRule kRuleOf<ProductOf> = TotalRule::kProduct;
template <>
constexpr TotalRule kRuleOf<LargestOf> = TotalRule::kLargest;
template <>
constexpr TotalRule kRuleOf<SmallestOf> = TotalRule::kSmallest;

template <typename Formula, bool kMean = false>
StatusOr<Kernel> forward_reduce(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(Axes axes, read_axes(op));
  return Kernel([axes = std::move(axes), &memory = memory_of(op), x = op.input("X"),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    Tensor* const to = &ctx.out(out);
    MILLRACE_ASSIGN_OR_RETURN(const ReducePlan r, reduction_of(from->dims(), axes));
    if (from->numel() == 0 || to->numel() != r.count || from->raw() == to->raw())
      return refuse("X {}", describe(*from));
    if (from->dtype() != DType::kFloat32 || to->dtype() != DType::kFloat32)
      return total(memory.device(), r, *from, *to,
                   {kMean ? TotalRule::kMean : kRuleOf<Formula>, 0});
    const float factor = kMean ? 1.0F / static_cast<float>(r.each) : 1.0F;
    return reduce<Formula>(memory, r, floats(from), floats(to), factor);
  });
}

// \param kReadsX  the slope depends on the element
template <typename Formula, bool kReadsX>
StatusOr<Kernel> backward_reduce(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(Axes axes, read_axes(op));
  const ArgIndex out = Formula::kReadsOut ? op.input("Out") : ArgIndex();
  return Kernel([&device = device_of(op), axes = std::move(axes), x = op.input("X"), out,
                 dout = op.input("Out@GRAD"),
                 dx = op.output("X@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *from));
    if (to == nullptr) return Ok();
    const Tensor* y = nullptr;
    if (Formula::kReadsOut) {
      MILLRACE_ASSIGN_OR_RETURN(y, needed_here(ctx, out, "Out"));
    }
    MILLRACE_RETURN_IF_ERROR(all_reals({from, d, y}));
    MILLRACE_ASSIGN_OR_RETURN(const ReducePlan r, reduction_of(from->dims(), axes));
    if (from->numel() == 0 || d->numel() != r.count || (y != nullptr && y->numel() != r.count) ||
        (r.each > 1 && d->raw() == to->raw()))
      return refuse("Out@GRAD {}", describe(*d));
    if (d->dtype() == DType::kFloat64)
      return total_slope(device, r, {from, y, d, to}, {kRuleOf<Formula>, 0});
    return each(device,
                Spread<Formula>{kReadsX ? floats(from) : nullptr, floats(y), floats(d), floats(to),
                                r.results, static_cast<float>(r.each)},
                to->numel());
  });
}

StatusOr<Kernel> gpu_clip_by_norm(const KernelSetup& op) {
  return Kernel([&memory = memory_of(op), args = FloatArgs(op),
                 limit = op.attr<float>("max_norm")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatOperands found, args.find(ctx));
    const auto [from, to] = found;
    if (from->numel() == 0 || to->numel() != from->numel()) return refuse("X {}", describe(*from));
    MILLRACE_ASSIGN_OR_RETURN(const ReducePlan r, reduction_of({from->numel()}, {}));
    MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<Block> square,
                              memory.allocate(sizeof(float), "a norm"));
    auto* const sum = reinterpret_cast<float*>(square->data());
    MILLRACE_RETURN_IF_ERROR(reduce<SumOfSquares>(memory, r, floats(from), sum, 1.0F));
    return each(args.device, ClipByNorm{floats(from), sum, floats(to), limit}, to->numel());
  });
}

}  // namespace

void add_reductions(KernelRegistry& registry) {
  registry.add("mean", forward_reduce<SumOf, true>);
  registry.add("mean_grad", backward_reduce<MeanOf, false>);
  registry.add("l1_norm", forward_reduce<SumOfMagnitudes>);
  registry.add("l1_norm_grad", backward_reduce<SumOfMagnitudes, true>);
  registry.add("squared_l2_norm", forward_reduce<SumOfSquares>);
  registry.add("squared_l2_norm_grad", backward_reduce<SumOfSquares, true>);
  registry.add("reduce_mean", forward_reduce<SumOf, true>);
  registry.add("reduce_mean_grad", backward_reduce<MeanOf, false>);
  registry.add("reduce_sum", forward_reduce<SumOf>);
  registry.add("reduce_sum_grad", backward_reduce<SumOf, false>);
  registry.add("reduce_max", forward_reduce<LargestOf>);
  registry.add("reduce_max_grad", backward_reduce<LargestOf, true>);
  registry.add("reduce_min", forward_reduce<SmallestOf>);
  registry.add("reduce_min_grad", backward_reduce<LargestOf, true>);
  registry.add("reduce_prod", forward_reduce<ProductOf>);
  registry.add("reduce_prod_grad", backward_reduce<ProductOf, true>);
  registry.add("frobenius_norm", forward_reduce<RootOfSquares>);
  registry.add("frobenius_norm_grad", backward_reduce<RootOfSquares, true>);
  registry.add("clip_by_norm", gpu_clip_by_norm);
}

}  // namespace millrace::gpu
