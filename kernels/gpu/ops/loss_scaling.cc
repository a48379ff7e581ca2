#include "kernels/gpu/functors/halves.h"
#include "kernels/gpu/functors/moves.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/ops/halves.h"
#include "kernels/registry.h"

// The scale of the loss of mixed-precision programs: nothing waits for the GPU.
namespace millrace::gpu {
namespace {

// A tensor of one element in device memory. Errors: rejects other tensors.
StatusOr<const std::byte*> only_element(const KernelContext& ctx, ArgIndex arg, const char* slot,
                                        DType dtype) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const tensor, needed_here(ctx, arg, slot));
  if (tensor->numel() != 1 || tensor->dtype() != dtype)
    return refuse("{} is {}", slot, describe(*tensor));
  return tensor->raw();
}
StatusOr<std::byte*> only_result(const KernelContext& ctx, ArgIndex arg, const char* slot,
                                 DType dtype) {
  Tensor* const tensor = ctx.find_out(arg);
  if (tensor == nullptr || !tensor->initialized() || tensor->numel() != 1 ||
      tensor->dtype() != dtype)
    return refuse("{} is no single element", slot);
  return tensor->raw();
}

// X and Out of both ops: as many tensors, and of the same types and sizes.
Status check_pairs(const KernelContext& ctx, ArgRange x, ArgRange out) {
  for (int32_t k = 0; k < x.count; ++k) {
    const Tensor* const from = ctx.in_value(x, k).get_if<Tensor>();
    const Tensor* const to = ctx.out_value(out, k).get_if<Tensor>();
    if (from == nullptr || to == nullptr || !from->initialized() || !to->initialized() ||
        from->dtype() != to->dtype() || from->numel() != to->numel())
      return refuse("X and Out are {} and {}", describe(ctx.in_value(x, k)),
                    describe(ctx.out_value(out, k)));
    MILLRACE_RETURN_IF_ERROR(with_stored_float(from->dtype(), [](auto) { return Ok(); }));
  }
  return Ok();
}

// Queues a functor for each gradient: make(tag, k, tensor) returns it for elements like the tag.
template <typename Make>
Status for_each_gradient(const KernelContext& ctx, Device& device, ArgRange x, const Make& make) {
  for (int32_t k = 0; k < x.count; ++k) {
    const Tensor& from = ctx.in(x, k);
    MILLRACE_RETURN_IF_ERROR(with_stored_float(
        from.dtype(), [&](auto tag) { return each(device, make(tag, k, from), from.numel()); }));
  }
  return Ok();
}

// All gradients are looked at before the first one is divided, as on the CPU.
Status unscale(const KernelContext& ctx, Device& device, ArgRange x, ArgRange out,
               const float* scale, uint8_t* found) {
  MILLRACE_RETURN_IF_ERROR(each(device, Set<uint8_t>{found, 0}, 1));
  MILLRACE_RETURN_IF_ERROR(
      for_each_gradient(ctx, device, x, [&](auto tag, int32_t /*k*/, const Tensor& from) {
        using T = decltype(tag);
        return FindNotFinite<T>{reinterpret_cast<const T*>(from.raw()), found};
      }));
  return for_each_gradient(ctx, device, x, [&](auto tag, int32_t k, const Tensor& from) {
    using T = decltype(tag);
    return gpu::Unscale<T>{reinterpret_cast<const T*>(from.raw()),
                           reinterpret_cast<T*>(ctx.out(out, k).raw()), scale, found};
  });
}

StatusOr<Kernel> gpu_check_finite(const KernelSetup& op) {
  const ArgRange x = op.inputs("X");
  const ArgRange out = op.outputs("Out");
  if (x.count != out.count) return refuse("X and Out have {} and {} vars", x.count, out.count);
  return Kernel([=, &device = device_of(op), scale = op.input("Scale"),
                 found = op.output("FoundInfinite")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const std::byte* const divisor,
                              only_element(ctx, scale, "Scale", DType::kFloat32));
    MILLRACE_ASSIGN_OR_RETURN(std::byte* const flag,
                              only_result(ctx, found, "FoundInfinite", DType::kBool));
    MILLRACE_RETURN_IF_ERROR(check_pairs(ctx, x, out));
    return unscale(ctx, device, x, out, reinterpret_cast<const float*>(divisor),
                   reinterpret_cast<uint8_t*>(flag));
  });
}

// The scale and its counters.
struct ScaleArgs {
  explicit ScaleArgs(const KernelSetup& op)
      : found(op.input("FoundInfinite")),
        stop(op.input("StopUpdate")),
        scale(op.input("PrevLossScaling")),
        good(op.input("InGoodSteps")),
        bad(op.input("InBadSteps")),
        next_scale(op.output("LossScaling")),
        next_good(op.output("OutGoodSteps")),
        next_bad(op.output("OutBadSteps")) {}

  // Completes the functor. Errors: rejects other types.
  [[nodiscard]] StatusOr<NextLossScale> find(const KernelContext& ctx, NextLossScale next) const {
    constexpr DType kCount = DType::kInt32;
    constexpr DType kScale = DType::kFloat32;
    MILLRACE_ASSIGN_OR_RETURN(const auto* const flag,
                              only_element(ctx, found, "FoundInfinite", DType::kBool));
    next.found = reinterpret_cast<const uint8_t*>(flag);
    if (stop) {
      MILLRACE_ASSIGN_OR_RETURN(const auto* const stops,
                                only_element(ctx, stop, "StopUpdate", DType::kBool));
      next.stop = reinterpret_cast<const uint8_t*>(stops);
    }
    MILLRACE_ASSIGN_OR_RETURN(const auto* const s,
                              only_element(ctx, scale, "PrevLossScaling", kScale));
    MILLRACE_ASSIGN_OR_RETURN(const auto* const g, only_element(ctx, good, "InGoodSteps", kCount));
    MILLRACE_ASSIGN_OR_RETURN(const auto* const b, only_element(ctx, bad, "InBadSteps", kCount));
    MILLRACE_ASSIGN_OR_RETURN(auto* const s_out,
                              only_result(ctx, next_scale, "LossScaling", kScale));
    MILLRACE_ASSIGN_OR_RETURN(auto* const g_out,
                              only_result(ctx, next_good, "OutGoodSteps", kCount));
    MILLRACE_ASSIGN_OR_RETURN(auto* const b_out, only_result(ctx, next_bad, "OutBadSteps", kCount));
    next.scale = reinterpret_cast<const float*>(s);
    next.good = reinterpret_cast<const int32_t*>(g);
    next.bad = reinterpret_cast<const int32_t*>(b);
    next.next_scale = reinterpret_cast<float*>(s_out);
    next.next_good = reinterpret_cast<int32_t*>(g_out);
    next.next_bad = reinterpret_cast<int32_t*>(b_out);
    return next;
  }
  ArgIndex found, stop, scale, good, bad, next_scale, next_good, next_bad;
};

// to = from, or 0 if something that is not finite was found.
template <typename Word>
Status clear_words(Device& device, const Tensor& from, std::byte* to, const uint8_t* found) {
  return each(device,
              ClearIfFound<Word>{reinterpret_cast<const Word*>(from.raw()),
                                 reinterpret_cast<Word*>(to), found},
              from.numel());
}

StatusOr<Kernel> gpu_update_scale(const KernelSetup& op) {
  const ArgRange x = op.inputs("X");
  const ArgRange out = op.outputs("Out");
  if (x.count != out.count) return refuse("X and Out have {} and {} vars", x.count, out.count);
  if (op.attr<bool>("stop_update")) return refuse("attribute 'stop_update' is set");
  NextLossScale rule{};
  rule.raise_after = op.attr<int32_t>("incr_every_n_steps");
  rule.lower_after = op.attr<int32_t>("decr_every_n_nan_or_inf");
  rule.raise = static_cast<double>(op.attr<float>("incr_ratio"));
  rule.lower = static_cast<double>(op.attr<float>("decr_ratio"));
  return Kernel(
      [=, &device = device_of(op), args = ScaleArgs(op)](const KernelContext& ctx) -> Status {
        MILLRACE_RETURN_IF_ERROR(check_pairs(ctx, x, out));
        MILLRACE_ASSIGN_OR_RETURN(const NextLossScale next, args.find(ctx, rule));
        MILLRACE_RETURN_IF_ERROR(each(device, next, 1));
        for (int32_t k = 0; k < x.count; ++k) {
          const Tensor& from = ctx.in(x, k);
          std::byte* const to = ctx.out(out, k).raw();
          MILLRACE_RETURN_IF_ERROR(from.dtype() == DType::kFloat32
                                       ? clear_words<uint32_t>(device, from, to, next.found)
                                       : clear_words<uint16_t>(device, from, to, next.found));
        }
        return Ok();
      });
}

}  // namespace

void add_loss_scaling(KernelRegistry& registry) {
  registry.add("check_finite_and_unscale", gpu_check_finite);
  registry.add("update_loss_scaling", gpu_update_scale);
}

}  // namespace millrace::gpu
