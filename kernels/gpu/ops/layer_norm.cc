#include "kernels/gpu/functors/layer_norm.h"

#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

namespace millrace::gpu {
namespace {

struct NormRows {
  int64_t count = 1;
  int64_t width = 1;
};

StatusOr<NormRows> norm_rows(const Tensor& x, int64_t axis) {
  if (axis < 0 || axis > static_cast<int64_t>(x.rank()) || x.numel() == 0)
    return refuse("attribute 'begin_norm_axis' is {} for {}", axis, describe(x));
  NormRows rows;
  for (size_t i = 0; i < x.rank(); ++i)
    (static_cast<int64_t>(i) < axis ? rows.count : rows.width) *= x.dims()[i];
  return rows;
}

Status check_counts(int64_t count, std::initializer_list<const Tensor*> vectors) {
  MILLRACE_RETURN_IF_ERROR(all_floats(vectors));
  for (const Tensor* const vector : vectors) {
    if (vector != nullptr && vector->numel() != count)
      return refuse("a vector of {} is {}", count, describe(*vector));
  }
  return Ok();
}

StatusOr<Kernel> gpu_layer_norm(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.input("X"), scale = op.input("Scale"),
                 bias = op.input("Bias"), y = op.output("Y"), mean = op.output("Mean"),
                 variance = op.output("Variance"), axis = op.attr<int64_t>("begin_norm_axis"),
                 epsilon = op.attr<float>("epsilon")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, y, *from));
    if (to == nullptr) return refuse("Y is missing");
    MILLRACE_RETURN_IF_ERROR(all_floats({from}));
    MILLRACE_ASSIGN_OR_RETURN(const NormRows r, norm_rows(*from, axis));
    const Tensor* const factors = ctx.find_in(scale);
    const Tensor* const summands = ctx.find_in(bias);
    Tensor* const means = ctx.find_out(mean);
    Tensor* const variances = ctx.find_out(variance);
    MILLRACE_RETURN_IF_ERROR(check_counts(r.width, {factors, summands}));
    MILLRACE_RETURN_IF_ERROR(check_counts(r.count, {means, variances}));
    return rows(device,
                LayerNorm{floats(from), floats(factors), floats(summands), floats(to),
                          floats(means), floats(variances), r.width, epsilon},
                r.count);
  });
}

StatusOr<Kernel> gpu_layer_norm_grad(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.input("X"), scale = op.input("Scale"),
                 mean = op.input("Mean"), variance = op.input("Variance"), dy = op.input("Y@GRAD"),
                 dx = op.output("X@GRAD"), dscale = op.output("Scale@GRAD"),
                 dbias = op.output("Bias@GRAD"), axis = op.attr<int64_t>("begin_norm_axis"),
                 epsilon = op.attr<float>("epsilon")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dy, "Y@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const means, needed_here(ctx, mean, "Mean"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const variances,
                              needed_here(ctx, variance, "Variance"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *from));
    MILLRACE_RETURN_IF_ERROR(all_floats({from, d}));
    if (d->numel() != from->numel()) return refuse("Y@GRAD {}", describe(*d));
    MILLRACE_ASSIGN_OR_RETURN(const NormRows r, norm_rows(*from, axis));
    const Tensor* const factors = ctx.find_in(scale);
    Tensor* const to_scale = ctx.find_out(dscale);
    Tensor* const to_bias = ctx.find_out(dbias);
    MILLRACE_RETURN_IF_ERROR(check_counts(r.width, {factors, to_scale, to_bias}));
    MILLRACE_RETURN_IF_ERROR(check_counts(r.count, {means, variances}));
    // before the gradient of x, which may share memory with the incoming one
    if (to_scale != nullptr || to_bias != nullptr) {
      MILLRACE_RETURN_IF_ERROR(
          lanes(device,
                LayerNormSums{floats(from), floats(d), floats(means), floats(variances),
                              floats(to_scale), floats(to_bias), r.count, r.width, epsilon},
                r.width));
    }
    if (to == nullptr) return Ok();
    return rows(device,
                LayerNormBackward{floats(from), floats(d), floats(factors), floats(means),
                                  floats(variances), floats(to), r.width, epsilon},
                r.count);
  });
}

}  // namespace

void add_layer_norm(KernelRegistry& registry) {
  registry.add("layer_norm", gpu_layer_norm);
  registry.add("layer_norm_grad", gpu_layer_norm_grad);
}

}  // namespace millrace::gpu
