#include "kernels/gpu/functors/point_losses.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "kernels/gpu/ops/kept_memory.h"
#include "kernels/gpu/ops/loss_forms.h"
#include "kernels/registry.h"

// Losses that apply one formula to each element, as kernels/cpu/loss/elementwise_losses.cc and its
// neighbours.
namespace millrace::gpu {
namespace point_loss_ops {
namespace {

// The inputs of a formula. Errors: rejects those that do not match the first.
template <typename Formula, size_t N>
StatusOr<MapPoints<Formula>> find_inputs(const KernelContext& ctx, const Formula& formula,
                                         const std::array<ArgIndex, N>& args) {
  static_assert(N == Formula::kInputs);
  MapPoints<Formula> map{};
  map.formula = formula;
  const Tensor* first = nullptr;
  for (size_t k = 0; k < N; ++k) {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed_here(ctx, args[k], "an input"));
    MILLRACE_RETURN_IF_ERROR(all_floats({in}));
    if (first == nullptr) first = in;
    if (in->numel() != first->numel()) return refuse("{} for {}", describe(*in), describe(*first));
    map.inputs[k] = floats(in);
    map.steps[k] = 1;
  }
  return map;
}

// to[i] = formula(inputs); nothing if the op lacks the output.
template <typename Formula, size_t N>
Kernel map_inputs(const KernelSetup& op, const std::array<const char*, N>& slots,
                  const char* output, const Formula& formula) {
  std::array<ArgIndex, N> args;
  for (size_t k = 0; k < N; ++k) args[k] = op.input(slots[k]);
  return [args, formula, &device = device_of(op),
          out = op.output(output)](const KernelContext& ctx) -> Status {
    if (!out) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(MapPoints<Formula> map, find_inputs(ctx, formula, args));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, out, ctx.in(args[0])));
    if (to == nullptr) return Ok();
    map.to = floats(to);
    return each(device, map, to->numel());
  };
}

// Two outputs by two formulas of the same inputs. Both check the same before anything is written.
Kernel both(Kernel first, Kernel second) {
  return
      [first = std::move(first), second = std::move(second)](const KernelContext& ctx) -> Status {
        MILLRACE_RETURN_IF_ERROR(first(ctx));
        return second(ctx);
      };
}

StatusOr<Kernel> gpu_bce(const KernelSetup& op) {
  return map_inputs<BinaryEntropy, 2>(op, {"X", "Label"}, "Out", {});
}
StatusOr<Kernel> gpu_bce_grad(const KernelSetup& op) {
  return map_inputs<BinaryEntropySlope, 3>(op, {"X", "Label", "Out@GRAD"}, "X@GRAD", {});
}

StatusOr<Kernel> gpu_hinge(const KernelSetup& op) {
  return map_inputs<Hinge, 2>(op, {"Logits", "Labels"}, "Loss", {});
}
StatusOr<Kernel> gpu_hinge_grad(const KernelSetup& op) {
  return map_inputs<HingeSlope, 3>(op, {"Logits", "Labels", "Loss@GRAD"}, "Logits@GRAD", {});
}

StatusOr<Kernel> gpu_teacher(const KernelSetup& op) {
  return map_inputs<TeacherStudent, 2>(op, {"X", "Label"}, "Y", {});
}
StatusOr<Kernel> gpu_teacher_grad(const KernelSetup& op) {
  const TeacherStudentSlope slope{op.attr<float>("soft_max_up_bound"),
                                  op.attr<float>("soft_max_lower_bound")};
  return map_inputs<TeacherStudentSlope, 3>(op, {"X", "Label", "Y@GRAD"}, "X@GRAD", slope);
}

StatusOr<Kernel> gpu_huber(const KernelSetup& op) {
  return both(map_inputs<Residual, 2>(op, {"X", "Y"}, "Residual", {}),
              map_inputs<Huber, 2>(op, {"X", "Y"}, "Out", {op.attr<float>("delta")}));
}
StatusOr<Kernel> gpu_huber_grad(const KernelSetup& op) {
  const auto delta = op.attr<float>("delta");
  return both(map_inputs<HuberSlope, 2>(op, {"Residual", "Out@GRAD"}, "X@GRAD", {delta, -1.0F}),
              map_inputs<HuberSlope, 2>(op, {"Residual", "Out@GRAD"}, "Y@GRAD", {delta, 1.0F}));
}

StatusOr<Kernel> gpu_modified_huber(const KernelSetup& op) {
  return both(map_inputs<SignedScore, 2>(op, {"X", "Y"}, "IntermediateVal", {}),
              map_inputs<ModifiedHuber, 2>(op, {"X", "Y"}, "Out", {}));
}
StatusOr<Kernel> gpu_modified_huber_grad(const KernelSetup& op) {
  return map_inputs<ModifiedHuberSlope, 3>(op, {"IntermediateVal", "Y", "Out@GRAD"}, "X@GRAD", {});
}

StatusOr<Kernel> gpu_rank(const KernelSetup& op) {
  return map_inputs<RankedPair, 3>(op, {"Label", "Left", "Right"}, "Out", {});
}
StatusOr<Kernel> gpu_rank_grad(const KernelSetup& op) {
  return both(map_inputs<RankedPairSlope, 4>(op, {"Label", "Left", "Right", "Out@GRAD"},
                                             "Left@GRAD", {1.0F}),
              map_inputs<RankedPairSlope, 4>(op, {"Label", "Left", "Right", "Out@GRAD"},
                                             "Right@GRAD", {-1.0F}));
}

StatusOr<Kernel> gpu_margin_rank(const KernelSetup& op) {
  const auto margin = op.attr<float>("margin");
  return both(map_inputs<MarginRank, 3>(op, {"X1", "X2", "Label"}, "Activated", {margin, true}),
              map_inputs<MarginRank, 3>(op, {"X1", "X2", "Label"}, "Out", {margin, false}));
}
StatusOr<Kernel> gpu_margin_rank_grad(const KernelSetup& op) {
  return both(
      map_inputs<MarginRankSlope, 3>(op, {"Label", "Activated", "Out@GRAD"}, "X1@GRAD", {-1.0F}),
      map_inputs<MarginRankSlope, 3>(op, {"Label", "Activated", "Out@GRAD"}, "X2@GRAD", {1.0F}));
}

// The divisor of the sum of all values.
float divisor_of(const std::string& reduction, const Tensor& x) {
  if (reduction == "mean") return static_cast<float>(std::max<int64_t>(x.numel(), 1));
  if (reduction == "batchmean" && x.rank() > 0)
    return static_cast<float>(std::max<int64_t>(x.dim(0), 1));
  return 1.0F;
}

StatusOr<Kernel> gpu_kldiv(const KernelSetup& op) {
  const auto reduction = op.attr<std::string>("reduction");
  if (reduction == "none") return map_inputs<Divergence, 2>(op, {"X", "Target"}, "Loss", {});
  return Kernel([args = std::array{op.input("X"), op.input("Target")}, reduction,
                 &device = device_of(op),
                 loss = op.output("Loss")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const MapPoints<Divergence> map,
                              find_inputs(ctx, Divergence{}, args));
    Tensor& to = ctx.out(loss);
    MILLRACE_RETURN_IF_ERROR(all_floats({&to}));
    if (to.numel() != 1) return refuse("Loss {}", describe(to));
    const Tensor& x = ctx.in(args[0]);
    return rows(device, SumPoints<Divergence>{map, x.numel(), divisor_of(reduction, x), floats(to)},
                1);
  });
}

StatusOr<Kernel> gpu_kldiv_grad(const KernelSetup& op) {
  return Kernel([reduction = op.attr<std::string>("reduction"), target = op.input("Target"),
                 dloss = op.input("Loss@GRAD"), dx = op.output("X@GRAD"),
                 &device = device_of(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const to, needed_here(ctx, target, "Target"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dloss, "Loss@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const out, output_like(ctx, dx, *to));
    if (out == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(all_floats({to, d}));
    const bool is_each = reduction == "none";
    if (d->numel() != (is_each ? to->numel() : 1)) return refuse("Loss@GRAD {}", describe(*d));
    if (!is_each && d->raw() == out->raw()) return refuse("X@GRAD shares memory with Loss@GRAD");
    const DivergenceSlope slope{is_each ? 1.0F : divisor_of(reduction, *to), is_each};
    return each(device,
                MapPoints<DivergenceSlope>{
                    slope, {floats(to), floats(d)}, {1, is_each ? 1 : 0}, floats(out)},
                out->numel());
  });
}

// sigmoid_cross_entropy_with_logits with weights, or divided by the number of labels that count.
struct LogisticArgs {
  explicit LogisticArgs(const KernelSetup& op)
      : memory(&memory_of(op)),
        x(op.input("X")),
        label(op.input("Label")),
        weight(op.input("pos_weight")),
        dout(op.input("Out@GRAD")),
        ignored(static_cast<float>(op.attr<int32_t>("ignore_index"))),
        normalize(op.attr<bool>("normalize")),
        kept(std::make_shared<KeptMemory<float>>(memory_of(op), "the number of labels")) {}
  Memory* memory;
  ArgIndex x, label, weight, dout;
  float ignored;
  bool normalize;
  std::shared_ptr<KeptMemory<float>> kept;  // weight 1, and the number of labels that count

  // The inputs of the formula, without the gradient. Errors: rejects what does not fit.
  template <typename Formula>
  [[nodiscard]] StatusOr<MapPoints<Formula>> find(const KernelContext& ctx) const {
    MapPoints<Formula> map{};
    map.formula.ignored = ignored;
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const given, needed_here(ctx, label, "Label"));
    const Tensor* const weights = ctx.find_in(weight);
    const Tensor* const d = ctx.find_in(dout);
    MILLRACE_RETURN_IF_ERROR(all_floats({from, given, weights, d}));
    for (const Tensor* const other : {given, weights, d}) {
      if (other != nullptr && other->numel() != from->numel())
        return refuse("{} for {}", describe(*other), describe(*from));
    }
    MILLRACE_ASSIGN_OR_RETURN(float* const numbers, kept->get(2));
    MILLRACE_RETURN_IF_ERROR(each(memory->device(), Fill{numbers, 1.0F}, 2));
    if (normalize) {
      const MapPoints<CountedLabel> counts{{ignored}, {floats(given)}, {1}, nullptr};
      MILLRACE_RETURN_IF_ERROR(rows(
          memory->device(), SumPoints<CountedLabel>{counts, from->numel(), 1.0F, numbers + 1}, 1));
    }
    const float* const inputs[] = {floats(from), floats(given),
                                   weights == nullptr ? numbers : floats(weights), numbers + 1,
                                   floats(d)};
    const int32_t steps[] = {1, 1, weights == nullptr ? 0 : 1, 0, 1};
    std::copy_n(inputs, kMostPointInputs, map.inputs);
    std::copy_n(steps, kMostPointInputs, map.steps);
    return map;
  }
};

}  // namespace
}  // namespace point_loss_ops

Kernel weighted_logistic_loss(const KernelSetup& op) {
  using namespace point_loss_ops;
  return [args = LogisticArgs(op), out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed_here(ctx, args.x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, out, *x));
    if (to == nullptr) return refuse("the result is missing");
    MILLRACE_ASSIGN_OR_RETURN(MapPoints<WeightedLogistic> map, args.find<WeightedLogistic>(ctx));
    map.to = floats(to);
    return each(args.memory->device(), map, to->numel());
  };
}
Kernel weighted_logistic_loss_grad(const KernelSetup& op) {
  using namespace point_loss_ops;
  return [args = LogisticArgs(op), dx = op.output("X@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed_here(ctx, args.x, "X"));
    MILLRACE_RETURN_IF_ERROR(needed_here(ctx, args.dout, "Out@GRAD").status());
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *x));
    if (to == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(MapPoints<WeightedLogisticSlope> map,
                              args.find<WeightedLogisticSlope>(ctx));
    map.to = floats(to);
    return each(args.memory->device(), map, to->numel());
  };
}

void add_point_losses(KernelRegistry& registry) {
  using namespace point_loss_ops;
  registry.add("bce_loss", gpu_bce);
  registry.add("bce_loss_grad", gpu_bce_grad);
  registry.add("hinge_loss", gpu_hinge);
  registry.add("hinge_loss_grad", gpu_hinge_grad);
  registry.add("teacher_student_sigmoid_loss", gpu_teacher);
  registry.add("teacher_student_sigmoid_loss_grad", gpu_teacher_grad);
  registry.add("huber_loss", gpu_huber);
  registry.add("huber_loss_grad", gpu_huber_grad);
  registry.add("modified_huber_loss", gpu_modified_huber);
  registry.add("modified_huber_loss_grad", gpu_modified_huber_grad);
  registry.add("rank_loss", gpu_rank);
  registry.add("rank_loss_grad", gpu_rank_grad);
  registry.add("margin_rank_loss", gpu_margin_rank);
  registry.add("margin_rank_loss_grad", gpu_margin_rank_grad);
  registry.add("kldiv_loss", gpu_kldiv);
  registry.add("kldiv_loss_grad", gpu_kldiv_grad);
}

}  // namespace millrace::gpu
