#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

namespace millrace::gpu {
namespace {

// Arguments that all updates share; sparse gradients and 16-bit parameters run on the CPU.
struct Update {
  explicit Update(const KernelSetup& op)
      : device(&device_of(op)),
        param(op.input("Param")),
        grad(op.input("Grad")),
        rate(op.input("LearningRate")),
        param_out(op.output("ParamOut")) {}

  struct Tensors {
    const Tensor* param;
    const Tensor* grad;
    const Tensor* rate;
    Tensor* out;
  };
  /// Errors: rejects anything but dense floats of one shape.
  [[nodiscard]] StatusOr<Tensors> tensors(const KernelContext& ctx) const {
    Tensors t{};
    MILLRACE_ASSIGN_OR_RETURN(t.param, needed_here(ctx, param, "Param"));
    MILLRACE_ASSIGN_OR_RETURN(t.grad, needed_here(ctx, grad, "Grad"));
    MILLRACE_ASSIGN_OR_RETURN(t.rate, needed_here(ctx, rate, "LearningRate"));
    MILLRACE_ASSIGN_OR_RETURN(t.out, output_like(ctx, param_out, *t.param));
    MILLRACE_RETURN_IF_ERROR(all_floats({t.param, t.grad, t.rate}));
    if (t.out == nullptr || t.grad->numel() != t.param->numel() || t.rate->numel() != 1)
      return refuse("Param {}, Grad {}, LearningRate {}", describe(*t.param), describe(*t.grad),
                    describe(*t.rate));
    return t;
  }

  Device* device;
  ArgIndex param, grad, rate, param_out;
};

// A state of the parameter's shape, and its output.
struct OptimizerState {
  OptimizerState(const KernelSetup& op, const char* in_slot, const char* out_slot)
      : in(op.input(in_slot)), out(op.output(out_slot)), slot(in_slot) {}
  struct Pointers {
    const float* in;
    float* out;
  };
  [[nodiscard]] StatusOr<Pointers> pointers(const KernelContext& ctx, int64_t count) const {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, in, slot));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, out, *from));
    MILLRACE_RETURN_IF_ERROR(all_floats({from}));
    if (to == nullptr || from->numel() != count) return refuse("{} {}", slot, describe(*from));
    return Pointers{floats(from), floats(to)};
  }
  ArgIndex in, out;
  const char* slot;
};

Status refuse_extras(const KernelSetup& op, std::initializer_list<const char*> slots) {
  for (const char* const slot : slots) {
    if (op.input(slot)) return refuse("an update with {} runs on the CPU", slot);
  }
  return Ok();
}

StatusOr<Kernel> gpu_sgd(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(refuse_extras(op, {"MasterParam"}));
  return Kernel([update = Update(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Update::Tensors t, update.tensors(ctx));
    return each(*update.device,
                Descend{floats(t.param), floats(t.grad), floats(t.rate), floats(t.out)},
                t.param->numel());
  });
}

StatusOr<Kernel> gpu_momentum(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(refuse_extras(op, {"MasterParam"}));
  DescendWithMomentum form{};
  form.mu = op.attr<float>("mu");
  form.rescale = op.attr<float>("rescale_grad");
  form.nesterov = op.attr<bool>("use_nesterov");
  if (op.attr<std::string>("regularization_method") == "l2_decay")
    form.decay = op.attr<float>("regularization_coeff");
  return Kernel([form, update = Update(op), state = OptimizerState(op, "Velocity", "VelocityOut")](
                    const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Update::Tensors t, update.tensors(ctx));
    MILLRACE_ASSIGN_OR_RETURN(const OptimizerState::Pointers v,
                              state.pointers(ctx, t.param->numel()));
    DescendWithMomentum f = form;
    f.param = floats(t.param);
    f.grad = floats(t.grad);
    f.rate = floats(t.rate);
    f.out = floats(t.out);
    f.velocity = v.in;
    f.velocity_out = v.out;
    return each(*update.device, f, t.param->numel());
  });
}

StatusOr<Kernel> gpu_adam(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(refuse_extras(
      op, {"MasterParam", "SkipUpdate", "Beta1Tensor", "Beta2Tensor", "EpsilonTensor"}));
  if (op.attr<bool>("use_global_beta_pow")) return refuse("attribute 'use_global_beta_pow' is set");
  DescendByMoments form{};
  form.beta1 = op.attr<float>("beta1");
  form.beta2 = op.attr<float>("beta2");
  form.epsilon = op.attr<float>("epsilon");
  return Kernel([form, update = Update(op), first = OptimizerState(op, "Moment1", "Moment1Out"),
                 second = OptimizerState(op, "Moment2", "Moment2Out"),
                 power1 = OptimizerState(op, "Beta1Pow", "Beta1PowOut"),
                 power2 = OptimizerState(op, "Beta2Pow", "Beta2PowOut")](
                    const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Update::Tensors t, update.tensors(ctx));
    const int64_t count = t.param->numel();
    MILLRACE_ASSIGN_OR_RETURN(const OptimizerState::Pointers m, first.pointers(ctx, count));
    MILLRACE_ASSIGN_OR_RETURN(const OptimizerState::Pointers v, second.pointers(ctx, count));
    MILLRACE_ASSIGN_OR_RETURN(const OptimizerState::Pointers p1, power1.pointers(ctx, 1));
    MILLRACE_ASSIGN_OR_RETURN(const OptimizerState::Pointers p2, power2.pointers(ctx, 1));
    DescendByMoments f = form;
    f.param = floats(t.param);
    f.grad = floats(t.grad);
    f.rate = floats(t.rate);
    f.out = floats(t.out);
    f.first = m.in;
    f.first_out = m.out;
    f.second = v.in;
    f.second_out = v.out;
    f.power1 = p1.in;
    f.power2 = p2.in;
    MILLRACE_RETURN_IF_ERROR(each(*update.device, f, count));
    return each(*update.device, AdvancePowers{p1.in, p2.in, p1.out, p2.out, f.beta1, f.beta2}, 1);
  });
}

}  // namespace

void add_optimizer(KernelRegistry& registry) {
  registry.add("sgd", gpu_sgd);
  registry.add("momentum", gpu_momentum);
  registry.add("adam", gpu_adam);
}

}  // namespace millrace::gpu
