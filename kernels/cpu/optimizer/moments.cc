#include "kernels/cpu/optimizer/moments.h"

namespace millrace::kernels::optimizer {
namespace moments {
namespace {

StatusOr<double> number_or(const KernelContext& ctx, ArgIndex arg, const char* slot,
                           double otherwise) {
  const Tensor* const tensor = ctx.find_in(arg);
  if (tensor == nullptr) return otherwise;
  return first_number(*tensor, slot);
}

Status multiply(const KernelContext& ctx, ArgIndex in, ArgIndex out, double factor) {
  if (!in || !out) return Ok();
  const Tensor& from = ctx.in(in);
  Tensor& to = ctx.out(out);
  if (!to.initialized() || to.dtype() != from.dtype() || to.numel() != from.numel())
    MILLRACE_RETURN_IF_ERROR(to.resize(from.dtype(), from.dims()));
  return dispatch<AllFloatTypes>(from.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    *to.data<T>() = static_cast<T>(static_cast<C>(*from.data<T>()) * static_cast<C>(factor));
    return Ok();
  });
}

}  // namespace
}  // namespace moments

MomentSlots moment_slots(const KernelSetup& op, size_t k) {
  MomentSlots slots;
  slots.beta1_pow = op.input("Beta1Pow", k);
  slots.beta1_pow_out = op.output("Beta1PowOut", k);
  slots.beta2_pow = op.input("Beta2Pow", k);
  slots.beta2_pow_out = op.output("Beta2PowOut", k);
  slots.skip = op.input("SkipUpdate");
  slots.beta1_tensor = op.input("Beta1Tensor");
  slots.beta2_tensor = op.input("Beta2Tensor");
  slots.epsilon_tensor = op.input("EpsilonTensor");
  slots.beta1 = op.attr<float>("beta1");
  slots.beta2 = op.attr<float>("beta2");
  slots.epsilon = op.attr<float>("epsilon");
  if (op.def().find_attr("use_global_beta_pow") != nullptr)
    slots.keep_powers = op.attr<bool>("use_global_beta_pow");
  return slots;
}

StatusOr<MomentSettings> moment_settings(const KernelContext& ctx, const MomentSlots& slots) {
  using namespace moments;
  MomentSettings s;
  MILLRACE_ASSIGN_OR_RETURN(s.beta1,
                            number_or(ctx, slots.beta1_tensor, "Beta1Tensor", slots.beta1));
  MILLRACE_ASSIGN_OR_RETURN(s.beta2,
                            number_or(ctx, slots.beta2_tensor, "Beta2Tensor", slots.beta2));
  MILLRACE_ASSIGN_OR_RETURN(s.epsilon,
                            number_or(ctx, slots.epsilon_tensor, "EpsilonTensor", slots.epsilon));
  MILLRACE_ASSIGN_OR_RETURN(s.beta1_pow, number_or(ctx, slots.beta1_pow, "Beta1Pow", 0));
  MILLRACE_ASSIGN_OR_RETURN(s.beta2_pow, number_or(ctx, slots.beta2_pow, "Beta2Pow", 0));
  MILLRACE_ASSIGN_OR_RETURN(const double skip, number_or(ctx, slots.skip, "SkipUpdate", 0));
  s.skip = skip != 0;
  return s;
}

Status update_powers(const KernelContext& ctx, const MomentSlots& slots, const MomentSettings& s,
                     const UpdateTensors& t) {
  using namespace moments;
  const bool keep = s.skip || slots.keep_powers || t.nothing_to_do();
  MILLRACE_RETURN_IF_ERROR(
      multiply(ctx, slots.beta1_pow, slots.beta1_pow_out, keep ? 1.0 : s.beta1));
  return multiply(ctx, slots.beta2_pow, slots.beta2_pow_out, keep ? 1.0 : s.beta2);
}

}  // namespace millrace::kernels::optimizer
