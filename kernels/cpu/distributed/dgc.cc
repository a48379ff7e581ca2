#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cpu/needed.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace dgc_kernels {
namespace {

enum class Decay : int32_t { kNone = 0, kL1 = 1, kL2 = 2 };

struct DgcAttrs {
  explicit DgcAttrs(const KernelSetup& op)
      : momentum(op.attr<float>("m")),
        nesterov(op.attr<bool>("use_nesterov")),
        sparsity(op.attr<std::vector<float>>("sparsity")),
        begin(op.attr<float>("rampup_begin_step")),
        warm_up(op.attr<float>("rampup_step")),
        decay(static_cast<Decay>(op.attr<int32_t>("regular_type"))),
        coefficient(op.attr<float>("regular_coeff")) {}

  float momentum;
  bool nesterov;
  std::vector<float> sparsity;
  float begin;
  float warm_up;
  Decay decay;
  float coefficient;
};

struct DgcSlots {
  explicit DgcSlots(const KernelSetup& op)
      : u(op.input("U")),
        v(op.input("V")),
        grad(op.input("Grad")),
        param(op.input("Param")),
        step(op.input("current_step")),
        ranks(op.input("nranks")),
        u_out(op.output("U_out")),
        v_out(op.output("V_out")),
        encoded(op.output("EncodeGrad")),
        grad_out(op.output("Grad_out")),
        count(op.output("k")),
        gathered(op.output("GatherBuff")) {}

  ArgIndex u, v, grad, param, step, ranks;
  ArgIndex u_out, v_out, encoded, grad_out, count, gathered;
};

StatusOr<float> one_float(const KernelContext& ctx, ArgIndex arg, const char* slot) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const tensor, needed(ctx, arg, slot));
  if (tensor->dtype() == DType::kFloat32 && tensor->numel() == 1) return *tensor->data<float>();
  return ctx.error("{} must be one f32, found {}", slot, describe(*tensor));
}

// Losses are divided by the number of trainers; the exchanged values are not.
StatusOr<int64_t> ranks_of(const KernelContext& ctx, ArgIndex arg) {
  if (!arg) return int64_t{1};
  MILLRACE_ASSIGN_OR_RETURN(const float ranks, one_float(ctx, arg, "nranks"));
  if (ranks >= 2 && ranks <= 65536) return static_cast<int64_t>(ranks);
  return ctx.error("nranks is {}, expected 2 trainers or more", ranks);
}

// Number of elements sent in a step during or after the warm-up.
StatusOr<int64_t> elements_sent(const DgcAttrs& attrs, float step, int64_t count) {
  const size_t periods = attrs.sparsity.size();
  if (periods == 0) return KernelContext::error("attribute 'sparsity' has no entries");
  const double passed = static_cast<double>(step - attrs.begin) * static_cast<double>(periods);
  size_t period = periods - 1;
  if (passed < static_cast<double>(attrs.warm_up) * static_cast<double>(periods))
    period = static_cast<size_t>(passed / static_cast<double>(attrs.warm_up));
  const float share = 1 - attrs.sparsity[period];
  if (share >= 0 && share < 1) return static_cast<int64_t>(static_cast<float>(count) * share);
  return KernelContext::error("sparsity {} of period {}, expected above 0 and at most 1",
                              attrs.sparsity[period], period);
}

// grad_out = ranks * grad + weight decay.
Status weigh(const KernelContext& ctx, const DgcAttrs& attrs, const DgcSlots& slots,
             int64_t ranks) {
  const Tensor& grad = ctx.in(slots.grad);
  const auto factor = static_cast<float>(ranks);
  const float* const from = grad.data<float>();
  float* const to = ctx.out(slots.grad_out).data<float>();
  const int64_t count = grad.numel();
  if (attrs.decay == Decay::kNone) {
    for (int64_t i = 0; i < count; ++i) to[i] = factor * from[i];
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const param, needed(ctx, slots.param, "Param"));
  if (param->dtype() != DType::kFloat32 || param->numel() != count)
    return ctx.error("Param {} does not fit Grad {}", describe(*param), describe(grad));
  const float* const p = param->data<float>();
  for (int64_t i = 0; i < count; ++i) {
    const float sign = p[i] > 0 ? 1.0F : (p[i] < 0 ? -1.0F : 0.0F);
    to[i] = factor * from[i] + attrs.coefficient * (attrs.decay == Decay::kL1 ? sign : p[i]);
  }
  return Ok();
}

// u = m * u + g and v += u; with Nesterov momentum u = m * (u + g) and v += u + g.
void accumulate_momentum(const DgcAttrs& attrs, const float* g, int64_t count, float* u, float* v) {
  const float m = attrs.momentum;
  for (int64_t i = 0; i < count; ++i) {
    u[i] = attrs.nesterov ? m * (u[i] + g[i]) : m * u[i] + g[i];
    v[i] += attrs.nesterov ? u[i] + g[i] : u[i];
  }
}

// Indices of the largest magnitudes in ascending order; of equal ones the first.
std::vector<int32_t> largest(const float* v, int64_t count, int64_t wanted) {
  std::vector<int32_t> places(static_cast<size_t>(count));
  std::iota(places.begin(), places.end(), 0);
  const auto before = [v](int32_t a, int32_t b) {
    const float x = std::abs(v[a]);
    const float y = std::abs(v[b]);
    return x > y || (x == y && a < b);
  };
  std::nth_element(places.begin(), places.begin() + wanted, places.end(), before);
  places.resize(static_cast<size_t>(wanted));
  std::sort(places.begin(), places.end());
  return places;
}

// k indices as i32 in the memory of floats, then k values; the sent elements are cleared here.
Status encode(const KernelContext& ctx, const DgcSlots& slots, int64_t wanted, int64_t ranks) {
  Tensor& u = ctx.out(slots.u_out);
  Tensor& v = ctx.out(slots.v_out);
  Tensor& to = ctx.out(slots.encoded);
  MILLRACE_RETURN_IF_ERROR(to.resize(DType::kFloat32, {2 * wanted}));
  if (Tensor* const gathered = ctx.find_out(slots.gathered)) {
    MILLRACE_RETURN_IF_ERROR(gathered->resize(DType::kFloat32, {2 * wanted * ranks}));
    std::fill_n(gathered->data<float>(), gathered->numel(), 0.0F);
  }
  const std::vector<int32_t> places = largest(v.data<float>(), v.numel(), wanted);
  std::memcpy(to.raw(), places.data(), places.size() * sizeof(int32_t));
  float* value = to.data<float>() + wanted;
  for (const int32_t place : places) {
    *value++ = v.data<float>()[place];
    v.data<float>()[place] = 0;
    u.data<float>()[place] = 0;
  }
  return Ok();
}

Status check_state(const KernelContext& ctx, const DgcSlots& slots) {
  const Tensor& grad = ctx.in(slots.grad);
  for (const ArgIndex arg : {slots.u, slots.v, slots.grad}) {
    const Tensor& tensor = ctx.in(arg);
    if (tensor.dtype() != DType::kFloat32 || tensor.numel() != grad.numel())
      return ctx.error("U, V and Grad must be f32 of one size, found {} beside {}",
                       describe(tensor), describe(grad));
  }
  if (grad.numel() <= std::numeric_limits<int32_t>::max()) return Ok();
  return ctx.error("Grad has {} elements, expected less than 2^31", grad.numel());
}

StatusOr<Kernel> dgc(const KernelSetup& op) {
  return Kernel([attrs = DgcAttrs(op), slots = DgcSlots(op)](const KernelContext& ctx) -> Status {
    MILLRACE_RETURN_IF_ERROR(check_state(ctx, slots));
    MILLRACE_ASSIGN_OR_RETURN(const float step, one_float(ctx, slots.step, "current_step"));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t ranks, ranks_of(ctx, slots.ranks));
    const int64_t count = ctx.in(slots.grad).numel();
    for (const auto& [from, to] : {std::pair(slots.u, slots.u_out), {slots.v, slots.v_out}}) {
      if (ctx.out(to).raw() != ctx.in(from).raw())
        std::copy_n(ctx.in(from).data<float>(), count, ctx.out(to).data<float>());
    }
    MILLRACE_RETURN_IF_ERROR(weigh(ctx, attrs, slots, ranks));
    Tensor& sent = ctx.out(slots.count);
    MILLRACE_RETURN_IF_ERROR(sent.resize(DType::kFloat32, {1}));
    *sent.data<float>() = 0;
    // before the warm-up the whole gradient is sent
    if (std::floor(step) < std::floor(attrs.begin)) return encode(ctx, slots, 0, ranks);
    MILLRACE_ASSIGN_OR_RETURN(const int64_t wanted, elements_sent(attrs, step, count));
    *sent.data<float>() = static_cast<float>(wanted);
    Tensor& grad = ctx.out(slots.grad_out);
    accumulate_momentum(attrs, grad.data<float>(), count, ctx.out(slots.u_out).data<float>(),
                        ctx.out(slots.v_out).data<float>());
    std::fill_n(grad.data<float>(), count, 0.0F);
    return encode(ctx, slots, wanted, ranks);
  });
}

}  // namespace
}  // namespace dgc_kernels

void add_distributed_dgc(KernelRegistry& registry) {
  registry.add("dgc", dgc_kernels::dgc);
}

}  // namespace millrace::kernels
