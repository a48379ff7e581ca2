#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/cpu/optimizer/norms.h"
#include "kernels/cpu/optimizer/update.h"
#include "kernels/cpu/random/bits.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace dpsgd_kernels {
namespace {

using optimizer::UpdateTensors;

struct DpsgdSettings {
  double clip = 0;
  double batch_size = 0;
  double sigma = 0;
};

// Each element gets independent noise; only then is a gradient private. (The original draws one
// number for all elements of a parameter.)
template <typename T>
void step(const UpdateTensors& t, const DpsgdSettings& s, double norm, std::mt19937_64& engine) {
  const T shrink = static_cast<T>(norm > s.clip ? s.clip / norm : 1.0);
  std::normal_distribution<T> noise(0, s.sigma > 0 ? static_cast<T>(s.sigma) : T(1));
  const T factor = s.sigma > 0 ? static_cast<T>(1 / s.batch_size) : T(0);
  const T rate = static_cast<T>(t.rate);
  T* const param = t.param->data<T>();
  const T* const grad = t.grad->data<T>();
  for (int64_t i = 0; i < t.param->numel(); ++i)
    param[i] -= rate * (grad[i] * shrink + factor * noise(engine));
}

StatusOr<Kernel> dpsgd(const KernelSetup& op) {
  const optimizer::UpdateSlots slots = optimizer::update_slots(op, {});
  const DpsgdSettings settings{op.attr<float>("clip"), op.attr<float>("batch_size"),
                               op.attr<float>("sigma")};
  if (settings.clip <= 0 || settings.batch_size <= 0) {
    return op.error("attributes 'clip' and 'batch_size' must be positive, found {} and {}",
                    settings.clip, settings.batch_size);
  }
  const auto seed = static_cast<uint64_t>(op.attr<int32_t>("seed"));
  return Kernel([=](const KernelContext& ctx) -> Status {
    // the noise must differ in every run even if the op has a seed attribute; next_seed() ensures
    // that
    const uint64_t run = ctx.device().next_seed();
    std::mt19937_64 engine(seed != 0 ? random_bits(seed, run) : run);
    MILLRACE_ASSIGN_OR_RETURN(const UpdateTensors t, update_tensors(ctx, slots));
    if (t.grad == nullptr) return ctx.error("Grad must be dense, found selected rows");
    const double norm = std::sqrt(optimizer::squared_norm(*t.grad, ctx.device()));
    return dispatch<FloatTypes>(t.param->dtype(), [&](auto tag) -> Status {
      step<typename decltype(tag)::type>(t, settings, norm, engine);
      return Ok();
    });
  });
}

}  // namespace
}  // namespace dpsgd_kernels

void add_optimizer_dpsgd(KernelRegistry& registry) {
  registry.add("dpsgd", dpsgd_kernels::dpsgd);
}

}  // namespace millrace::kernels
