#include <cmath>
#include <vector>

#include "kernels/cpu/optimizer/norms.h"
#include "kernels/cpu/optimizer/update.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace lars_kernels {
namespace {

using optimizer::squared_norm;
using optimizer::UpdateSlots;
using optimizer::UpdateTensors;

template <typename T>
struct LarsStep {
  T rate;
  T mu;
  T decay;
  T rescale;
  void operator()(T& param, T grad, T& velocity) const {
    velocity = mu * velocity + rate * (grad * rescale + decay * param);
    param -= velocity;
  }
};

struct LarsSettings {
  double mu = 0;
  double coefficient = 0;
  double decay = 0;
  double epsilon = 0;
  double rescale = 1;
};

Status run(const KernelContext& ctx, const UpdateSlots& slots, const LarsSettings& s,
           RowMerger& merger) {
  MILLRACE_ASSIGN_OR_RETURN(UpdateTensors t, update_tensors(ctx, slots));
  if (t.grad == nullptr) return ctx.error("Grad must be dense, found selected rows");
  const Tensor& wide = t.master != nullptr ? *t.master : *t.param;
  const double param = std::sqrt(squared_norm(wide, ctx.device()));
  const double grad = s.rescale * std::sqrt(squared_norm(*t.grad, ctx.device()));
  if (s.decay > 0 && param > 0 && grad > 0)
    t.rate *= s.coefficient * param / (grad + s.decay * param + s.epsilon);
  return optimizer::update<1>(ctx, t, optimizer::Sparse::kAllRows, merger, [&](auto rate) {
    using T = decltype(rate);
    return LarsStep<T>{rate, static_cast<T>(s.mu), static_cast<T>(s.decay),
                       static_cast<T>(s.rescale)};
  });
}

StatusOr<Kernel> lars_momentum(const KernelSetup& op) {
  const auto decays = op.attr<std::vector<float>>("lars_weight_decay");
  const auto params = static_cast<size_t>(op.inputs("Param").count);
  if (decays.size() != 1 && decays.size() != params) {
    return op.error(
        "attribute 'lars_weight_decay' must have one entry or one for each of the {} parameters, "
        "found {}",
        params, decays.size());
  }
  struct Part {
    UpdateSlots slots;
    LarsSettings settings;
  };
  std::vector<Part> parts;
  for (size_t k = 0; k < params; ++k) {
    parts.push_back(
        {optimizer::update_slots(op, {{"Velocity", "VelocityOut"}}, k),
         {op.attr<float>("mu"), op.attr<float>("lars_coeff"), decays[decays.size() == 1 ? 0 : k],
          op.attr<float>("epsilon"), op.attr<float>("rescale_grad")}});
  }
  auto merger = std::make_shared<RowMerger>();
  return Kernel([parts, merger](const KernelContext& ctx) -> Status {
    for (const Part& part : parts)
      MILLRACE_RETURN_IF_ERROR(run(ctx, part.slots, part.settings, *merger));
    return Ok();
  });
}

}  // namespace
}  // namespace lars_kernels

void add_optimizer_lars(KernelRegistry& registry) {
  registry.add("lars_momentum", lars_kernels::lars_momentum);
}

}  // namespace millrace::kernels
