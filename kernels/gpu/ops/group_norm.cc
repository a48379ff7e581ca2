#include <algorithm>
#include <memory>

#include "kernels/cpu/nn/window.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/ops/channels_first.h"
#include "kernels/gpu/ops/kept_memory.h"
#include "kernels/registry.h"

// group_norm, and instance_norm, where every channel is a group.
namespace millrace::gpu {
namespace group_norm {
namespace {

// What differs between the two ops.
struct Settings {
  int64_t groups = 0;  // 0: one for each channel
  float epsilon = 0;
  bool is_instance = false;
  const char* mean = "Mean";
  const char* variance = "Variance";
};

Settings read_settings(const KernelSetup& op) {
  Settings s;
  s.epsilon = op.attr<float>("epsilon");
  s.is_instance = op.op().type().startswith("instance_norm");
  if (s.is_instance) {
    s.mean = "SavedMean";
    s.variance = "SavedVariance";
  } else {
    s.groups = std::max<int64_t>(op.attr<int64_t>("groups"), 1);
  }
  return s;
}

StatusOr<NormGroups> groups_of(const Tensor& x, int64_t groups) {
  if (x.rank() < 2 || x.numel() == 0) return refuse("X {}", describe(x));
  const int64_t count = groups == 0 ? x.dim(1) : groups;
  if (x.dim(1) % count != 0) return refuse("{} groups of {}", count, describe(x));
  return NormGroups{x.dim(0), count, x.dim(1) / count, x.numel() / (x.dim(0) * x.dim(1))};
}

// Optional vectors of floats.
Status expect_floats(int64_t count, std::initializer_list<const Tensor*> vectors) {
  for (const Tensor* const v : vectors) {
    if (v != nullptr && (v->dtype() != DType::kFloat32 || v->numel() != count))
      return refuse("{} floats are expected, found {}", count, describe(*v));
  }
  return Ok();
}

Kernel with_layout(const KernelSetup& op, const Settings& s, Kernel kernel) {
  const bool last = !s.is_instance && kernels::channels_last(op, "data_layout");
  return in_channels_first(op, last, {"X", "Y", "Y@GRAD", "X@GRAD"}, std::move(kernel));
}

StatusOr<Kernel> forward(const KernelSetup& op) {
  const Settings s = read_settings(op);
  return with_layout(
      op, s,
      [s, &device = device_of(op), x = op.input("X"), scale = op.input("Scale"),
       bias = op.input("Bias"), y = op.output("Y"), mean = op.output(s.mean),
       variance = op.output(s.variance)](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
        MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, y, *from));
        MILLRACE_RETURN_IF_ERROR(all_floats({from}));
        MILLRACE_ASSIGN_OR_RETURN(const NormGroups of, groups_of(*from, s.groups));
        GroupNorm norm{};
        norm.of = of;
        const Tensor* const factors = ctx.find_in(scale);
        const Tensor* const summands = ctx.find_in(bias);
        Tensor* const means = ctx.find_out(mean);
        Tensor* const variances = ctx.find_out(variance);
        MILLRACE_RETURN_IF_ERROR(expect_floats(from->dim(1), {factors, summands}));
        MILLRACE_RETURN_IF_ERROR(expect_floats(of.batch * of.groups, {means, variances}));
        norm.x = floats(from);
        norm.scale = floats(factors);
        norm.bias = floats(summands);
        norm.y = floats(to);
        norm.mean = floats(means);
        norm.variance = floats(variances);
        norm.epsilon = s.epsilon;
        norm.saves_deviation = s.is_instance;
        return rows(device, norm, of.batch * of.groups);
      });
}

class Gradient {
 public:
  Gradient(const KernelSetup& op, const Settings& s)
      : settings_(s),
        device_(device_of(op)),
        x_(op.input("X")),
        dy_(op.input("Y@GRAD")),
        mean_(op.input(s.mean)),
        variance_(op.input(s.variance)),
        scale_(op.input("Scale")),
        dx_(op.output("X@GRAD")),
        dscale_(op.output("Scale@GRAD")),
        dbias_(op.output("Bias@GRAD")),
        sums_(memory_of(op), "sums of a normalization by groups") {}

  Status run(const KernelContext& ctx) {
    MILLRACE_ASSIGN_OR_RETURN(const FloatGradient f, float_gradient(ctx, x_, "X", dy_, dx_));
    MILLRACE_RETURN_IF_ERROR(all_floats({f.y, f.dy}));
    if (f.dy->dims() != f.y->dims()) return refuse("Y@GRAD {}", describe(*f.dy));
    MILLRACE_ASSIGN_OR_RETURN(const NormGroups of, groups_of(*f.y, settings_.groups));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const means, needed_here(ctx, mean_, settings_.mean));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const variances,
                              needed_here(ctx, variance_, settings_.variance));
    const int64_t channels = f.y->dim(1);
    const Tensor* const factors = ctx.find_in(scale_);
    Tensor* const to_scale = ctx.find_out(dscale_);
    Tensor* const to_bias = ctx.find_out(dbias_);
    MILLRACE_RETURN_IF_ERROR(expect_floats(of.batch * of.groups, {means, variances}));
    MILLRACE_RETURN_IF_ERROR(expect_floats(channels, {factors, to_scale, to_bias}));
    MILLRACE_ASSIGN_OR_RETURN(double* const sums, sums_.get(2 * of.batch * channels));
    const GroupNormGradient g{of,
                              floats(f.y),
                              floats(f.dy),
                              floats(means),
                              floats(variances),
                              settings_.epsilon,
                              settings_.is_instance};
    MILLRACE_RETURN_IF_ERROR(rows(device_, GroupNormSums{g, sums}, of.batch * channels));
    if (to_scale != nullptr || to_bias != nullptr) {
      const GroupNormVectors vectors{sums, floats(to_scale), floats(to_bias), of.batch, channels};
      MILLRACE_RETURN_IF_ERROR(each(device_, vectors, channels));
    }
    if (f.dx == nullptr) return Ok();
    // as in the original, group_norm without Scale ignores the mean of the gradient
    const bool shifts = settings_.is_instance || factors != nullptr;
    return rows(device_, GroupNormBackward{g, sums, floats(factors), floats(f.dx), shifts},
                of.batch * of.groups);
  }

 private:
  Settings settings_;
  Device& device_;
  ArgIndex x_, dy_, mean_, variance_, scale_, dx_, dscale_, dbias_;
  KeptMemory<double> sums_;
};

StatusOr<Kernel> backward(const KernelSetup& op) {
  const Settings s = read_settings(op);
  const auto gradient = std::make_shared<Gradient>(op, s);
  return with_layout(op, s, [gradient](const KernelContext& ctx) { return gradient->run(ctx); });
}

}  // namespace
}  // namespace group_norm

void add_group_norm(KernelRegistry& registry) {
  using namespace group_norm;
  for (const char* const type : {"group_norm", "instance_norm"}) registry.add(type, forward);
  for (const char* const type : {"group_norm_grad", "instance_norm_grad"})
    registry.add(type, backward);
}

}  // namespace millrace::gpu
