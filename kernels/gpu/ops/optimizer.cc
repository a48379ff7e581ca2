#include "kernels/gpu/functors/moves.h"
#include "kernels/gpu/ops/reduce.h"
#include "kernels/gpu/ops/updates.h"
#include "kernels/registry.h"

// Updates of parameters with dense and sparse gradients. also_for_halves() adds 16-bit parameters,
// whose master weights are the parameter here.
namespace millrace::gpu {
namespace {

using Slots = std::initializer_list<std::pair<const char*, const char*>>;

// The kernel of a rule that reads attributes and the learning rate only.
template <typename Rule>
StatusOr<Kernel> plain_update(const KernelSetup& op, const Rule& rule, Slots states,
                              MissingRows missing) {
  return Kernel([rule, missing, args = UpdateArgs(op, states)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const UpdateOperands on, find_operands(ctx, args));
    return run_update(args, on, rule, {}, missing);
  });
}

StatusOr<Kernel> gpu_sgd(const KernelSetup& op) {
  return plain_update(op, Descend{}, {}, MissingRows::kKept);
}

StatusOr<Kernel> gpu_momentum(const KernelSetup& op) {
  DescendWithMomentum rule{};
  rule.mu = op.attr<float>("mu");
  rule.rescale = op.attr<float>("rescale_grad");
  rule.nesterov = op.attr<bool>("use_nesterov");
  if (op.attr<std::string>("regularization_method") == "l2_decay")
    rule.decay = op.attr<float>("regularization_coeff");
  return plain_update(op, rule, {{"Velocity", "VelocityOut"}}, MissingRows::kUpdated);
}

StatusOr<Kernel> gpu_adagrad(const KernelSetup& op) {
  return plain_update(op, DescendBySquares{1.0F, 1.0F, op.attr<float>("epsilon"), 0.0F},
                      {{"Moment", "MomentOut"}}, MissingRows::kKept);
}
StatusOr<Kernel> gpu_decayed_adagrad(const KernelSetup& op) {
  const auto decay = op.attr<float>("decay");
  return plain_update(op, DescendBySquares{decay, 1.0F - decay, op.attr<float>("epsilon"), 0.0F},
                      {{"Moment", "MomentOut"}}, MissingRows::kUpdated);
}
StatusOr<Kernel> gpu_adadelta(const KernelSetup& op) {
  return plain_update(
      op, DescendByUpdates{op.attr<float>("rho"), op.attr<float>("epsilon"), 0.0F},
      {{"AvgSquaredGrad", "AvgSquaredGradOut"}, {"AvgSquaredUpdate", "AvgSquaredUpdateOut"}},
      MissingRows::kUpdated);
}
StatusOr<Kernel> gpu_rmsprop(const KernelSetup& op) {
  const auto decay = op.attr<float>("decay");
  const auto epsilon = op.attr<float>("epsilon");
  const auto momentum = op.attr<float>("momentum");
  if (op.attr<bool>("centered")) {
    return plain_update(
        op, DescendByRoots<true>{decay, epsilon, momentum, 0.0F},
        {{"MeanSquare", "MeanSquareOut"}, {"Moment", "MomentOut"}, {"MeanGrad", "MeanGradOut"}},
        MissingRows::kUpdated);
  }
  return plain_update(op, DescendByRoots<false>{decay, epsilon, momentum, 0.0F},
                      {{"MeanSquare", "MeanSquareOut"}, {"Moment", "MomentOut"}},
                      MissingRows::kUpdated);
}
StatusOr<Kernel> gpu_ftrl(const KernelSetup& op) {
  // as on the CPU: a tiny l1 and l2 keep the divisor from being zero
  constexpr double kFloor = 1e-10;
  const FollowLeader rule{static_cast<float>(op.attr<float>("l1") + kFloor),
                          static_cast<float>(op.attr<float>("l2") + kFloor),
                          -op.attr<float>("lr_power"), 0.0F};
  return plain_update(
      op, rule,
      {{"SquaredAccumulator", "SquaredAccumOut"}, {"LinearAccumulator", "LinearAccumOut"}},
      MissingRows::kKept);
}

// The powers of the decays, which some updates advance.
struct Powers {
  explicit Powers(const KernelSetup& op)
      : in1(op.input("Beta1Pow")),
        in2(op.input("Beta2Pow")),
        out1(op.output("Beta1PowOut")),
        out2(op.output("Beta2PowOut")),
        beta1(op.attr<float>("beta1")),
        beta2(op.attr<float>("beta2")) {}
  struct Found {
    PowerPointers first, second;
  };
  [[nodiscard]] StatusOr<Found> find(const KernelContext& ctx) const {
    MILLRACE_ASSIGN_OR_RETURN(const PowerPointers first, find_power(ctx, in1, out1));
    MILLRACE_ASSIGN_OR_RETURN(const PowerPointers second, find_power(ctx, in2, out2));
    if (first.out == nullptr || second.out == nullptr) return refuse("an output is missing");
    return Found{first, second};
  }
  // \param keep  the powers are copied
  // \param skip  a flag in device memory: the same; may be null
  [[nodiscard]] Status advance(Device& device, const Found& p, bool keep,
                               const uint8_t* skip = nullptr) const {
    return each(device,
                AdvancePowers{p.first.in, p.second.in, p.first.out, p.second.out,
                              keep ? 1.0F : beta1, keep ? 1.0F : beta2, skip},
                1);
  }
  ArgIndex in1, in2, out1, out2;
  float beta1, beta2;
};

Status refuse_moment_extras(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(refuse_extras(op, {"Beta1Tensor", "Beta2Tensor", "EpsilonTensor"}));
  if (op.def().find_attr("use_global_beta_pow") != nullptr && op.attr<bool>("use_global_beta_pow"))
    return refuse("attribute 'use_global_beta_pow' is set");
  return Ok();
}

// The flag in device memory that says that nothing changes in a step; null if the op has none.
StatusOr<const uint8_t*> skip_flag(const KernelContext& ctx, ArgIndex arg) {
  if (!arg) return nullptr;
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const flag, needed_here(ctx, arg, "SkipUpdate"));
  if (flag->dtype() != DType::kBool || flag->numel() != 1)
    return refuse("SkipUpdate is {}", describe(*flag));
  return reinterpret_cast<const uint8_t*>(flag->raw());
}

StatusOr<Kernel> adam_update(const KernelSetup& op, float decay) {
  MILLRACE_RETURN_IF_ERROR(refuse_moment_extras(op));
  DescendByMoments form{};
  form.beta1 = op.attr<float>("beta1");
  form.beta2 = op.attr<float>("beta2");
  form.epsilon = op.attr<float>("epsilon");
  form.decay = decay;
  const MissingRows missing =
      op.attr<bool>("lazy_mode") ? MissingRows::kKept : MissingRows::kUpdated;
  return Kernel([form, missing, powers = Powers(op), skip_arg = op.input("SkipUpdate"),
                 args = UpdateArgs(op, {{"Moment1", "Moment1Out"}, {"Moment2", "Moment2Out"}})](
                    const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const UpdateOperands on, find_operands(ctx, args));
    MILLRACE_ASSIGN_OR_RETURN(const Powers::Found p, powers.find(ctx));
    MILLRACE_ASSIGN_OR_RETURN(const uint8_t* const skip, skip_flag(ctx, skip_arg));
    if (skip != nullptr && on.rows != nullptr) return refuse("SkipUpdate with a sparse gradient");
    DescendByMoments rule = form;
    // as in the original: powers that are updated in place are advanced before a sparse update
    rule.advanced1 = on.rows != nullptr && p.first.in == p.first.out;
    rule.advanced2 = on.rows != nullptr && p.second.in == p.second.out;
    MILLRACE_RETURN_IF_ERROR(
        run_update(args, on, rule, {nullptr, p.first.in, p.second.in, {}, skip}, missing));
    return powers.advance(args.memory->device(), p, on.rows != nullptr && on.rows->rows.empty(),
                          skip);
  });
}

StatusOr<Kernel> gpu_adam(const KernelSetup& op) {
  return adam_update(op, 0.0F);
}
StatusOr<Kernel> gpu_adamw(const KernelSetup& op) {
  return adam_update(op, op.attr<bool>("with_decay")
                             ? op.attr<float>("coeff") * op.attr<float>("lr_ratio")
                             : 0.0F);
}

StatusOr<Kernel> gpu_adamax(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(refuse_moment_extras(op));
  const DescendByMaximum rule{op.attr<float>("beta1"), op.attr<float>("beta2"),
                              op.attr<float>("epsilon"), 0.0F};
  return Kernel([rule, power = op.input("Beta1Pow"),
                 args = UpdateArgs(op, {{"Moment", "MomentOut"}, {"InfNorm", "InfNormOut"}})](
                    const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const UpdateOperands on, find_operands(ctx, args));
    MILLRACE_ASSIGN_OR_RETURN(const PowerPointers p, find_power(ctx, power, {}));
    return run_update(args, on, rule, {nullptr, p.in, nullptr, {}, nullptr}, MissingRows::kUpdated);
  });
}

// Sums of squares of two vectors of that many elements, in device memory.
struct Squares {
  std::shared_ptr<Block> block;
  [[nodiscard]] const float* at(size_t k) const {
    return reinterpret_cast<const float*>(block->data()) + k;
  }
};
StatusOr<Squares> squares_of(Memory& memory, const float* a, const float* b, int64_t count) {
  MILLRACE_ASSIGN_OR_RETURN(const ReducePlan plan, reduction_of({count}, {}));
  Squares made;
  MILLRACE_ASSIGN_OR_RETURN(made.block, memory.allocate(2 * sizeof(float), "norms"));
  auto* const to = reinterpret_cast<float*>(made.block->data());
  MILLRACE_RETURN_IF_ERROR(reduce<SumOfSquares>(memory, plan, a, to, 1.0F));
  MILLRACE_RETURN_IF_ERROR(reduce<SumOfSquares>(memory, plan, b, to + 1, 1.0F));
  return made;
}

StatusOr<Kernel> gpu_lars(const KernelSetup& op) {
  const auto decays = op.attr<std::vector<float>>("lars_weight_decay");
  if (op.inputs("Param").count != 1 || decays.size() != 1)
    return refuse("an update of several parameters runs on the CPU");
  const DescendByNorms rule{op.attr<float>("mu"),           decays[0],
                            op.attr<float>("rescale_grad"), op.attr<float>("lars_coeff"),
                            op.attr<float>("epsilon"),      0.0F};
  return Kernel([rule, args = UpdateArgs(op, {{"Velocity", "VelocityOut"}})](
                    const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const UpdateOperands on, find_operands(ctx, args));
    if (on.rows != nullptr) return refuse("rows are reported on the CPU");
    MILLRACE_ASSIGN_OR_RETURN(
        const Squares squares,
        squares_of(*args.memory, floats(on.param), floats(on.grad), on.param->numel()));
    const StepNumbers numbers{nullptr, nullptr, nullptr, {squares.at(0), squares.at(1)}, nullptr};
    return each(args.memory->device(), dense_update(on, rule, numbers), on.param->numel());
  });
}

struct LambSettings {
  float epsilon;
  float decay;
  bool adapt;
};

Status gpu_run_lamb(const KernelContext& ctx, const UpdateArgs& args, const Powers& powers,
                    const LambSettings& s) {
  MILLRACE_ASSIGN_OR_RETURN(UpdateOperands on, find_operands(ctx, args));
  MILLRACE_ASSIGN_OR_RETURN(const Powers::Found p, powers.find(ctx));
  if (on.rows != nullptr && on.rows->rows.empty())
    return powers.advance(args.memory->device(), p, /*keep=*/true);
  Memory& memory = *args.memory;
  const int64_t count = on.param->numel();
  MILLRACE_ASSIGN_OR_RETURN(
      const std::shared_ptr<Block> block,
      memory.allocate(count * static_cast<int64_t>(sizeof(float)), "direction of lamb"));
  auto* const direction = reinterpret_cast<float*>(block->data());
  MILLRACE_RETURN_IF_ERROR(
      run_update(args, on, AdvanceMoments{powers.beta1, powers.beta2}, {}, MissingRows::kUpdated));
  MILLRACE_RETURN_IF_ERROR(
      each(memory.device(),
           LambDirection{on.out, on.states_out[0], on.states_out[1], p.first.in, p.second.in,
                         direction, s.epsilon, s.decay},
           count));
  StepNumbers numbers{on.rate, nullptr, nullptr, {}, nullptr};
  Squares squares;
  if (s.adapt) {
    MILLRACE_ASSIGN_OR_RETURN(squares, squares_of(memory, on.out, direction, count));
    numbers.squares[0] = squares.at(0);
    numbers.squares[1] = squares.at(1);
  }
  MILLRACE_RETURN_IF_ERROR(each(
      memory.device(),
      gpu::Update<StepByTrust>{StepByTrust{}, numbers, on.out, direction, on.out, {}, {}}, count));
  return powers.advance(memory.device(), p, /*keep=*/false);
}

StatusOr<Kernel> gpu_lamb(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(refuse_moment_extras(op));
  MILLRACE_RETURN_IF_ERROR(refuse_extras(op, {"SkipUpdate"}));
  const auto decay = op.attr<float>("weight_decay");
  const LambSettings settings{op.attr<float>("epsilon"), decay,
                              decay > 0.0F || op.attr<bool>("always_adapt")};
  return Kernel(
      [settings, powers = Powers(op),
       args = UpdateArgs(op, {{"Moment1", "Moment1Out"}, {"Moment2", "Moment2Out"}})](
          const KernelContext& ctx) { return gpu_run_lamb(ctx, args, powers, settings); });
}

}  // namespace

void add_optimizer(KernelRegistry& registry) {
  registry.add("sgd", gpu_sgd);
  registry.add("momentum", gpu_momentum);
  registry.add("lars_momentum", gpu_lars);
  registry.add("adam", gpu_adam);
  registry.add("adamw", gpu_adamw);
  registry.add("adamax", gpu_adamax);
  registry.add("adagrad", gpu_adagrad);
  registry.add("decayed_adagrad", gpu_decayed_adagrad);
  registry.add("adadelta", gpu_adadelta);
  registry.add("rmsprop", gpu_rmsprop);
  registry.add("ftrl", gpu_ftrl);
  registry.add("lamb", gpu_lamb);
}

}  // namespace millrace::gpu
