#include "kernels/cpu/nn/interp_taps.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/cpu/nn/window.h"

namespace millrace::kernels {
namespace interp_taps {
namespace {

constexpr int64_t kLargest = int64_t{1} << 31;

StatusOr<std::vector<int64_t>> integers(const KernelContext& ctx, const Tensor& tensor,
                                        const char* slot) {
  if (tensor.dtype() == DType::kInt32) {
    const auto values = tensor.values<int32_t>();
    return std::vector<int64_t>(values.begin(), values.end());
  }
  if (tensor.dtype() == DType::kInt64) {
    const auto values = tensor.values<int64_t>();
    return std::vector<int64_t>(values.begin(), values.end());
  }
  return ctx.error("{} must hold integers, found {}", slot, describe(tensor));
}

struct InterpTapsSizes {
  Dims out;
  std::vector<float> factor;  // per spatial dim; 0: none
};

// Sizes from one-element tensors; a slot without value keeps the attribute.
Status read_size_tensors(const KernelContext& ctx, const InterpAttrs& attrs,
                         InterpTapsSizes& sizes) {
  if (attrs.size_tensors.count != static_cast<int32_t>(attrs.spatial)) {
    return ctx.error("SizeTensor must have {} tensors, found {}", attrs.spatial,
                     attrs.size_tensors.count);
  }
  for (size_t i = 0; i < attrs.spatial; ++i) {
    const auto k = static_cast<int32_t>(i);
    if (!ctx.has_in(attrs.size_tensors, k)) continue;
    const auto* const tensor = ctx.in_value(attrs.size_tensors, k).get_if<Tensor>();
    if (tensor == nullptr || tensor->numel() != 1)
      return ctx.error("SizeTensor {} must have one element", i);
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> values,
                              integers(ctx, *tensor, "SizeTensor"));
    sizes.out[i] = values[0];
  }
  return Ok();
}

Status read_factors(const KernelContext& ctx, const InterpAttrs& attrs, InterpTapsSizes& sizes) {
  std::vector<float> factors = attrs.scale;
  if (const Tensor* const tensor = ctx.find_in(attrs.scale_tensor)) {
    if (tensor->dtype() != DType::kFloat32 || tensor->numel() < 1)
      return ctx.error("Scale must hold f32 factors, found {}", describe(*tensor));
    factors.assign(tensor->values<float>().begin(), tensor->values<float>().end());
  }
  if (factors.empty()) return Ok();
  for (size_t i = 0; i < attrs.spatial; ++i) {
    sizes.factor[i] = factors.size() >= attrs.spatial ? factors[i] : factors[0];
    // the older ops take the sizes of attributes instead
    if (attrs.second && !(sizes.factor[i] > 0))
      return ctx.error("factors of sizes must be above 0, found {}", sizes.factor[i]);
  }
  return Ok();
}

// Priority: a list of tensors, one tensor, scale factors, attributes.
StatusOr<InterpTapsSizes> read_sizes(const KernelContext& ctx, const InterpAttrs& attrs,
                                     llvm::ArrayRef<int64_t> in) {
  InterpTapsSizes sizes{attrs.sizes, std::vector<float>(attrs.spatial, 0.0F)};
  if (attrs.size_tensors.count > 0) {
    MILLRACE_RETURN_IF_ERROR(read_size_tensors(ctx, attrs, sizes));
  } else {
    MILLRACE_RETURN_IF_ERROR(read_factors(ctx, attrs, sizes));
    for (size_t i = 0; i < attrs.spatial; ++i) {
      const float wanted = static_cast<float>(in[i]) * sizes.factor[i];
      if (sizes.factor[i] > 0 && wanted < static_cast<float>(kLargest))
        sizes.out[i] = static_cast<int64_t>(wanted);
    }
    if (const Tensor* const tensor = ctx.find_in(attrs.out_size)) {
      MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> values,
                                integers(ctx, *tensor, "OutSize"));
      if (values.size() != attrs.spatial)
        return ctx.error("OutSize must have {} elements, found {}", attrs.spatial, values.size());
      sizes.out.assign(values.begin(), values.end());
    }
  }
  for (size_t i = 0; i < attrs.spatial; ++i) {
    if (sizes.out[i] >= 1 && sizes.out[i] < kLargest && in[i] >= 1) continue;
    return ctx.error("cannot resize spatial dim {} from {} to {}", i, in[i], sizes.out[i]);
  }
  return sizes;
}

// Distance of two adjacent output elements, in input elements.
float distance_of(const InterpAttrs& attrs, int64_t in, int64_t out, float factor) {
  if (out <= 1) return 0.0F;
  if (attrs.align_corners) return static_cast<float>(in - 1) / static_cast<float>(out - 1);
  if (attrs.second && factor > 0) return static_cast<float>(1.0 / factor);
  return static_cast<float>(in) / static_cast<float>(out);
}

void nearest_tap(InterpAxis& axis, const InterpAttrs& attrs, float step, int64_t i) {
  const float place = step * static_cast<float>(i);
  const auto at = static_cast<int64_t>(attrs.align_corners ? place + 0.5 : place);
  axis.index.push_back(std::min(at, axis.in - 1));
  axis.weight.push_back(1.0);
}

void linear_taps(InterpAxis& axis, const InterpAttrs& attrs, float step, int64_t i) {
  float place = step * static_cast<float>(i);
  // The older ops compute the position in f64, the newer ones in f32. A product of two floats is
  // exact in double. It is therefore rounded before the subtraction, unlike in a fused operation.
  if (attrs.centres && attrs.second)
    place = std::max(
        static_cast<float>(static_cast<double>(step) * (static_cast<double>(i) + 0.5)) - 0.5F,
        0.0F);
  else if (attrs.centres)
    place = static_cast<float>(std::max(step * (static_cast<double>(i) + 0.5) - 0.5, 0.0));
  const int64_t first = std::min(static_cast<int64_t>(place), axis.in - 1);
  const float behind = place - static_cast<float>(first);
  axis.index.push_back(first);
  axis.index.push_back(std::min(first + 1, axis.in - 1));
  axis.weight.push_back(1.0F - behind);
  axis.weight.push_back(behind);
}

// Weight of a pixel at a distance, for cubic convolution with parameter -0.75.
double cubic_weight(double x) {
  constexpr double kA = -0.75;
  x = std::fabs(x);
  if (x <= 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA;
}

void cubic_taps(InterpAxis& axis, const InterpAttrs& attrs, float step, int64_t i) {
  const double place = attrs.align_corners ? static_cast<double>(step * static_cast<float>(i))
                                           : step * (static_cast<double>(i) + 0.5) - 0.5;
  const double first = std::floor(place);
  for (int64_t k = -1; k <= 2; ++k) {
    const int64_t at = static_cast<int64_t>(first) + k;
    axis.index.push_back(std::clamp<int64_t>(at, 0, axis.in - 1));
    axis.weight.push_back(cubic_weight(place - first - static_cast<double>(k)));
  }
}

InterpAxis make_axis(const InterpAttrs& attrs, int64_t in, int64_t out, float factor) {
  InterpAxis axis;
  axis.in = in;
  axis.out = out;
  const float step = distance_of(attrs, in, out, factor);
  for (int64_t i = 0; i < out; ++i) {
    switch (attrs.method) {
      case InterpMethod::kNearest:
        nearest_tap(axis, attrs, step, i);
        break;
      case InterpMethod::kLinear:
        linear_taps(axis, attrs, step, i);
        break;
      case InterpMethod::kCubic:
        cubic_taps(axis, attrs, step, i);
        break;
    }
  }
  axis.taps = static_cast<int64_t>(axis.index.size()) / out;
  return axis;
}

}  // namespace
}  // namespace interp_taps

InterpAttrs read_interp_attrs(const KernelSetup& op) {
  InterpAttrs attrs;
  llvm::StringRef type = op.def().type();
  attrs.spatial = type.startswith("linear") ? 1 : type.startswith("trilinear") ? 3 : 2;
  // the attribute decides, whatever the name of the op
  const auto method = op.attr<std::string>("interp_method");
  attrs.method = method == "nearest"   ? InterpMethod::kNearest
                 : method == "bicubic" ? InterpMethod::kCubic
                                       : InterpMethod::kLinear;
  attrs.second = type.contains("_v2");
  if (attrs.second) {
    attrs.scale = op.attr<std::vector<float>>("scale");
  } else if (const auto scale = op.attr<float>("scale"); scale > 0) {
    attrs.scale = {scale};
  }
  static constexpr const char* kNames[] = {"out_d", "out_h", "out_w"};
  for (size_t i = 3 - attrs.spatial; i < 3; ++i) attrs.sizes.push_back(op.attr<int64_t>(kNames[i]));
  attrs.align_corners = op.attr<bool>("align_corners");
  attrs.centres = !attrs.align_corners && op.attr<int32_t>("align_mode") == 0;
  attrs.channels_last = op.attr<std::string>("data_layout").compare(0, 2, "NC") != 0;
  attrs.out_size = op.input("OutSize");
  attrs.size_tensors = op.inputs("SizeTensor");
  attrs.scale_tensor = op.input("Scale");
  return attrs;
}

StatusOr<InterpPlan> plan_interp(const KernelContext& ctx, const InterpAttrs& attrs,
                                 const Tensor& x) {
  using namespace interp_taps;
  if (x.rank() != attrs.spatial + 2)
    return ctx.error("X must have {} dims, found {}", attrs.spatial + 2, describe(x));
  const auto in = spatial_dims(x.dims(), attrs.channels_last);
  MILLRACE_ASSIGN_OR_RETURN(const InterpTapsSizes sizes, read_sizes(ctx, attrs, in));
  InterpPlan plan;
  const int64_t channels = channel_count(x.dims(), attrs.channels_last);
  plan.lanes = attrs.channels_last ? channels : 1;
  plan.parts = attrs.channels_last ? x.dim(0) : x.dim(0) * channels;
  for (size_t i = 0; i < 3; ++i) {
    const size_t missing = 3 - attrs.spatial;
    plan.axes[i] = i < missing ? make_axis(attrs, 1, 1, 0)
                               : make_axis(attrs, in[i - missing], sizes.out[i - missing],
                                           sizes.factor[i - missing]);
    if (i < missing) plan.axes[i] = {1, 1, 1, {0}, {1.0}};
  }
  return plan;
}

Dims interp_dims(const InterpPlan& plan, const InterpAttrs& attrs, const Tensor& x) {
  Dims dims(x.dims().begin(), x.dims().end());
  for (size_t i = 0; i < attrs.spatial; ++i)
    dims[(attrs.channels_last ? 1 : 2) + i] = plan.axes[3 - attrs.spatial + i].out;
  return dims;
}

}  // namespace millrace::kernels
