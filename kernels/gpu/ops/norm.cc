#include <algorithm>
#include <memory>

#include "kernels/cpu/nn/batch_norm_args.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/ops/channels_first.h"
#include "kernels/gpu/ops/halves.h"
#include "kernels/gpu/ops/kept_memory.h"
#include "kernels/registry.h"

// Batch normalization; channels are in dim 1.
namespace millrace::gpu {
namespace norm {
namespace {

struct NormSettings {
  float epsilon = 0;
  float momentum = 0;
  bool global = false;  ///< the running statistics are used
  bool relu = false;
};

StatusOr<NormSettings> read_norm_settings(const KernelSetup& op) {
  if (op.input("MomentumTensor")) return refuse("momentum is given as a tensor");
  NormSettings s;
  s.epsilon = op.attr<float>("epsilon");
  s.momentum = op.attr<float>("momentum");
  s.global = op.attr<bool>("use_global_stats") ||
             (op.attr<bool>("is_test") && !op.attr<bool>("trainable_statistics"));
  s.relu = op.attr<bool>("fuse_with_relu");
  return s;
}

// Errors: rejects images for which the CPU kernel has special rules.
StatusOr<NormImages> images_of(const Tensor& x) {
  if (x.rank() < 2 || x.numel() == 0) return refuse("X {}", describe(x));
  NormImages images{x.dim(0), x.dim(1), 1};
  for (const int64_t dim : x.dims().drop_front(2)) images.inner *= dim;
  if (images.of_channel() == 1) return refuse("one value in a channel has no variance");
  return images;
}

// Checks vectors with one element per channel; they may be absent.
Status check_vectors(int64_t channels, std::initializer_list<const Tensor*> vectors) {
  MILLRACE_RETURN_IF_ERROR(all_floats(vectors));
  for (const Tensor* const vector : vectors) {
    if (vector != nullptr && vector->numel() != channels)
      return refuse("a vector for {} channels is {}", channels, describe(*vector));
  }
  return Ok();
}

// Checks an optional image.
Status same_image(const Tensor* image, const Tensor& x) {
  if (image == nullptr || (image->dims() == x.dims() && image->dtype() == x.dtype())) return Ok();
  return refuse("an image is {}, but X is {}", describe(*image), describe(x));
}

// Elements of an image; null if it is absent.
template <typename T>
const T* image_data(const Tensor* image) {
  return image == nullptr ? nullptr : reinterpret_cast<const T*>(image->raw());
}
template <typename T>
T* image_data(Tensor* image) {
  return image == nullptr ? nullptr : reinterpret_cast<T*>(image->raw());
}

// Copies the running statistics.
Status hand_on(Device& device, const Tensor& from, Tensor* to) {
  if (to == nullptr || to->raw() == from.raw()) return Ok();
  return device.copy(from.raw(), to->raw(), from.bytes());
}

// As many parts as fill a large GPU, each with elements for some rounds of a team.
NormParts divide(const NormImages& images) {
  constexpr int64_t kTeams = 512;
  constexpr int64_t kFewestElements = 4096;
  constexpr int64_t kMostParts = 64;
  const int64_t wanted = (kTeams + images.channels - 1) / images.channels;
  const int64_t possible = images.of_channel() / kFewestElements;
  return {images, std::clamp<int64_t>(std::min(wanted, possible), 1, kMostParts)};
}

Status gpu_run_forward(Device& device, const KernelContext& ctx,
                       const kernels::BatchNormForwardArgs& args, ArgIndex z_arg,
                       const NormSettings& s, KeptMemory<double>& part_sums) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed_here(ctx, args.x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const mean, needed_here(ctx, args.mean, "Mean"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const variance,
                            needed_here(ctx, args.variance, "Variance"));
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const y, output_like(ctx, args.y, *x));
  MILLRACE_RETURN_IF_ERROR(with_stored_float(x->dtype(), [](auto /*tag*/) { return Ok(); }));
  MILLRACE_ASSIGN_OR_RETURN(const NormImages images, images_of(*x));
  const Tensor* const scale = ctx.find_in(args.scale);
  const Tensor* const bias = ctx.find_in(args.bias);
  Tensor* const mean_out = ctx.find_out(args.mean_out);
  Tensor* const variance_out = ctx.find_out(args.variance_out);
  Tensor* const saved_mean = ctx.find_out(args.saved_mean);
  Tensor* const saved_variance = ctx.find_out(args.saved_variance);
  MILLRACE_RETURN_IF_ERROR(
      check_vectors(images.channels, {scale, bias, mean, variance, mean_out, variance_out}));
  if (s.global) {
    MILLRACE_RETURN_IF_ERROR(hand_on(device, *mean, mean_out));
    MILLRACE_RETURN_IF_ERROR(hand_on(device, *variance, variance_out));
    // no op reads the saved statistics in this case, but the CPU kernel writes them, too
    if (saved_mean != nullptr && saved_mean->numel() == images.channels)
      MILLRACE_RETURN_IF_ERROR(hand_on(device, *mean, saved_mean));
    return with_stored_float(x->dtype(), [&](auto tag) {
      using T = decltype(tag);
      return each(device,
                  NormInference<T>{images, image_data<T>(x), image_data<T>(y), floats(scale),
                                   floats(bias), floats(mean), floats(variance), s.epsilon, s.relu},
                  x->numel());
    });
  }
  MILLRACE_RETURN_IF_ERROR(check_vectors(images.channels, {saved_mean, saved_variance}));
  const Tensor* const z = ctx.find_in(z_arg);
  MILLRACE_RETURN_IF_ERROR(same_image(z, *x));
  const NormParts of = divide(images);
  MILLRACE_ASSIGN_OR_RETURN(double* const sums, part_sums.get(2 * of.rows()));
  return with_stored_float(x->dtype(), [&](auto tag) -> Status {
    using T = decltype(tag);
    MILLRACE_RETURN_IF_ERROR(rows(device, NormSums<T>{of, image_data<T>(x), sums}, of.rows()));
    return rows(device,
                NormTraining<T>{of, sums, image_data<T>(x), image_data<T>(y), floats(scale),
                                floats(bias), floats(mean), floats(variance), floats(mean_out),
                                floats(variance_out), floats(saved_mean), floats(saved_variance),
                                s.momentum, s.epsilon, s.relu, image_data<T>(z)},
                of.rows());
  });
}

StatusOr<Kernel> forward(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(NormSettings settings, read_norm_settings(op));
  const bool fused = op.op().type() == "fused_batch_norm";
  if (fused && settings.global) return refuse("the fused op has given statistics");
  settings.relu = settings.relu || fused;
  // the CPU kernel computes 1 / sqrt(variance) for it
  if (settings.global && op.output("SavedVariance") && !op.attr<bool>("is_test"))
    return refuse("saved statistics of a frozen normalization are made on the CPU");
  Kernel kernel([settings, &device = device_of(op), args = kernels::BatchNormForwardArgs(op),
                 z = fused ? op.input("Z") : ArgIndex{},
                 sums = std::make_shared<KeptMemory<double>>(memory_of(op), "sums of batch_norm")](
                    const KernelContext& ctx) {
    return gpu_run_forward(device, ctx, args, z, settings, *sums);
  });
  return in_channels_first(op, kernels::channels_last(op, "data_layout"), {"X", "Z", "Y"},
                           std::move(kernel));
}

StatusOr<Kernel> backward(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(NormSettings settings, read_norm_settings(op));
  // as on the CPU: in test mode, the gradient ignores trainable_statistics
  settings.global = op.attr<bool>("use_global_stats") || op.attr<bool>("is_test");
  const ArgIndex mean =
      settings.global ? op.input(op.input("Mean") ? "Mean" : "MeanOut") : op.input("SavedMean");
  const ArgIndex variance = settings.global
                                ? op.input(op.input("Variance") ? "Variance" : "VarianceOut")
                                : op.input("SavedVariance");
  const bool fused = op.op().type() == "fused_batch_norm_grad";
  Kernel kernel([settings, mean, variance, &device = device_of(op), x = op.input("X"),
                 y = fused ? op.input("Y") : ArgIndex{},
                 more = fused ? op.input("MoreY@GRAD") : ArgIndex{},
                 dz = fused ? op.output("Z@GRAD") : ArgIndex{}, dy = op.input("Y@GRAD"),
                 scale = op.input("Scale"), dx = op.output("X@GRAD"),
                 dscale = op.output("Scale@GRAD"), dbias = op.output("Bias@GRAD"),
                 part_sums = std::make_shared<KeptMemory<double>>(
                     memory_of(op), "sums of batch_norm")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed_here(ctx, dy, "Y@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const m, needed_here(ctx, mean, "Mean"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const v, needed_here(ctx, variance, "Variance"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *from));
    MILLRACE_RETURN_IF_ERROR(element_of({from, d}).status());
    MILLRACE_ASSIGN_OR_RETURN(const NormImages images, images_of(*from));
    if (d->dims() != from->dims()) return refuse("Y@GRAD {}", describe(*d));
    const Tensor* const result = ctx.find_in(y);
    const Tensor* const second = ctx.find_in(more);
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_z, output_like(ctx, dz, *from));
    if (to_z != nullptr && is_half(from->dtype()))
      return refuse("a sum that would be rounded to 16 bits before it is used");
    MILLRACE_RETURN_IF_ERROR(same_image(result, *from));
    MILLRACE_RETURN_IF_ERROR(same_image(second, *from));
    const Tensor* const factor = ctx.find_in(scale);
    Tensor* const to_scale = ctx.find_out(dscale);
    Tensor* const to_bias = ctx.find_out(dbias);
    MILLRACE_RETURN_IF_ERROR(check_vectors(images.channels, {m, v, factor, to_scale, to_bias}));
    const NormParts of = divide(images);
    MILLRACE_ASSIGN_OR_RETURN(double* const sums, part_sums->get(2 * of.rows()));
    return with_stored_float(from->dtype(), [&](auto tag) -> Status {
      using T = decltype(tag);
      const NormGradient<T> g{of,
                              image_data<T>(from),
                              image_data<T>(d),
                              floats(m),
                              floats(v),
                              settings.epsilon,
                              settings.global,
                              image_data<T>(result),
                              image_data<T>(second),
                              image_data<T>(to_z)};
      MILLRACE_RETURN_IF_ERROR(rows(device, NormBackwardSums<T>{g, sums}, of.rows()));
      return rows(device,
                  NormBackward<T>{g, sums, floats(factor), image_data<T>(to), floats(to_scale),
                                  floats(to_bias)},
                  of.rows());
    });
  });
  return in_channels_first(op, kernels::channels_last(op, "data_layout"),
                           {"X", "Y", "Y@GRAD", "MoreY@GRAD", "X@GRAD", "Z@GRAD"},
                           std::move(kernel));
}

}  // namespace
}  // namespace norm

void add_norm(KernelRegistry& registry) {
  using namespace norm;
  for (const char* const type : {"batch_norm", "fused_batch_norm"}) registry.add(type, forward);
  for (const char* const type : {"batch_norm_grad", "fused_batch_norm_grad"})
    registry.add(type, backward);
}

}  // namespace millrace::gpu
