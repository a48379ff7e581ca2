#include "kernels/cpu/quant/int8_operands.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include <llvm/ADT/STLExtras.h>

#include "kernels/cpu/nn/channels.h"
#include "kernels/cpu/quant/grid.h"
#include "kernels/cpu/seen_mark.h"
#include "kernels/cpu/tensor/axis_view.h"
#include "kernels/cpu/wide_loops.h"

namespace millrace::kernels {
namespace int8_operands {
namespace {

// The fake_quantize ops treat smaller scales as 0.
constexpr float kNoScale = 1e-30F;
constexpr int64_t kRoundGrain = 32768;

float of_channel(llvm::ArrayRef<float> values, int64_t channel) {
  return values.size() == 1 ? values[0] : values[static_cast<size_t>(channel)];
}

Grid grid_of(bool half_even) {
  Grid grid;
  grid.half_even = half_even;
  grid.back = true;
  return grid;
}

// The weights may be marked, and of either type.
float weight_at(const Tensor& weights, int64_t i) {
  return weights.dtype() == DType::kInt8
             ? static_cast<float>(reinterpret_cast<const int8_t*>(weights.raw())[i])
             : reinterpret_cast<const float*>(weights.raw())[i];
}

}  // namespace
}  // namespace int8_operands

using namespace int8_operands;

Int8Operands::Int8Operands(const KernelSetup& op, llvm::StringRef weights_slot, size_t channel_dim)
    : in_scale_(op.input("InScale")),
      weight_scale_(op.input("WeightScale")),
      zero_point_(op.input("WeightZeroPoint")),
      out_weight_scale_(op.output("OutWeightScale")),
      weights_(op.input(weights_slot)),
      channel_dim_(channel_dim),
      input_half_even_(op.attr<int64_t>("input_round_type") == 0),
      weights_half_even_(op.attr<int64_t>("weight_round_type") == 0),
      channel_wise_(op.attr<bool>("channel_wise")),
      are_integers_(op.attr<bool>("integer_weights")),
      fixed_scale_(op.attr<float>("weight_scale")) {
  op.accept_layout(weights_);
}

template <typename Body>
void Int8Operands::for_runs(const Tensor& weights, Body&& body) const {
  const AxisView view(weights.dims(), channel_dim_);
  for (int64_t run = 0; run < view.outer * view.size; ++run)
    body(run % view.size, run * view.inner, view.inner);
}

Status Int8Operands::update(const KernelContext& ctx) {
  Tensor& weights = ctx.stored_in(weights_);
  if ((weights.dtype() != DType::kFloat32 && weights.dtype() != DType::kInt8) ||
      weights.rank() <= channel_dim_)
    return ctx.error("weights must be f32 or int8, found {}", describe(weights));
  MILLRACE_ASSIGN_OR_RETURN(const float* const scale,
                            needed_values<float>(ctx, in_scale_, "InScale", 1));
  if (scale_ != *scale) ++version_;
  scale_ = *scale;
  MILLRACE_ASSIGN_OR_RETURN(std::vector<float> given,
                            values_of(ctx, weight_scale_, "WeightScale", weights));
  if (fixed_scale_ != 0) given.assign(1, fixed_scale_);
  MILLRACE_RETURN_IF_ERROR(check_zero_point(ctx, zero_point_, "WeightZeroPoint"));
  if (seen_ == nullptr || weights.layout() != seen_ || given != given_) {
    MILLRACE_ASSIGN_OR_RETURN(seen_, mark_seen(weights));
    given_ = std::move(given);
    MILLRACE_RETURN_IF_ERROR(quantize(weights));
    ++version_;
  }
  fits_ = dnn::multiplies_int8() && weights_fit_ && is_usable_scale(scale_);
  if (Tensor* const out = ctx.find_out(out_weight_scale_)) {
    MILLRACE_RETURN_IF_ERROR(out->resize(DType::kFloat32, {static_cast<int64_t>(scales_.size())}));
    llvm::copy(scales_, out->data<float>());
  }
  return Ok();
}

StatusOr<std::vector<float>> Int8Operands::values_of(const KernelContext& ctx, ArgIndex arg,
                                                     const char* slot,
                                                     const Tensor& weights) const {
  const Tensor* const values = ctx.find_in(arg);
  if (values == nullptr) return std::vector<float>();
  MILLRACE_ASSIGN_OR_RETURN(
      const float* const first,
      channel_values<float>(values, slot, values->numel() == 1 ? 1 : weights.dim(channel_dim_)));
  return std::vector<float>(first, first + values->numel());
}

Status Int8Operands::quantize(const Tensor& weights) {
  scales_ = given_;
  if (scales_.empty()) {
    scales_.assign(channel_wise_ ? static_cast<size_t>(weights.dim(channel_dim_)) : 1, 0.0F);
    for_runs(weights, [&](int64_t channel, int64_t first, int64_t count) {
      float& scale = scales_[channel_wise_ ? static_cast<size_t>(channel) : 0];
      for (int64_t i = first; i < first + count; ++i)
        scale = std::max(scale, std::fabs(weight_at(weights, i)));
    });
  }
  const Dims dims(weights.dims().begin(), weights.dims().end());
  MILLRACE_RETURN_IF_ERROR(integers_.resize(DType::kInt8, dims));
  packed_.clear();
  weights_fit_ = llvm::all_of(
      scales_, [&](float scale) { return std::isfinite(scale) && (are_integers_ || scale >= 0); });
  auto* const integers = integers_.data<int8_t>();
  for_runs(weights, [&](int64_t channel, int64_t first, int64_t count) {
    const float scale = of_channel(scales_, channel);
    for (int64_t i = first; weights_fit_ && i < first + count; ++i) {
      const float value = weight_at(weights, i);
      if (are_integers_) {
        weights_fit_ = value >= -128 && value <= 127 && value == std::trunc(value);
        integers[i] = weights_fit_ ? static_cast<int8_t>(value) : int8_t{0};
      } else if (scale <= kNoScale) {
        integers[i] = 0;
        weights_fit_ = value == 0;
      } else {
        weights_fit_ =
            detail::round_to_int8({scale, weights_half_even_}, &value, integers + i, 1).numbers;
      }
    }
  });
  return Ok();
}

StatusOr<const Tensor*> Int8Operands::integers_in(CpuDevice& device, const LayoutPtr& layout) {
  if (layout == nullptr) return &integers_;
  for (const auto& copy : packed_) {
    if (same_order(copy->layout(), layout)) return copy.get();
  }
  auto copy = std::make_unique<Tensor>();
  MILLRACE_RETURN_IF_ERROR(copy_plain(integers_, *copy));
  MILLRACE_RETURN_IF_ERROR(bring_to(device, *copy, layout));
  packed_.push_back(std::move(copy));
  return packed_.back().get();
}

std::optional<std::vector<float>> Int8Operands::scales(llvm::ArrayRef<float> factors) const {
  std::vector<float> result(static_cast<size_t>(integers_.dim(channel_dim_)));
  for (size_t c = 0; c < result.size(); ++c) {
    const float factor = factors.empty() ? 1.0F : factors[c];
    const float weight = of_channel(scales_, static_cast<int64_t>(c));
    result[c] = scale_ / kInt8Bins * (weight / kInt8Bins) * factor;
    if (!std::isfinite(result[c])) return std::nullopt;
    if (std::fabs(result[c]) > kNoScale) continue;
    // sums of a channel without weights are 0 whatever they are multiplied by
    if (are_integers_ || weight > kNoScale) return std::nullopt;
    result[c] = 1;
  }
  return result;
}

StatusOr<bool> Int8Operands::round(CpuDevice& device, const Tensor& input, Tensor& out) const {
  LayoutPtr layout;
  if (input.layout() != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(layout, blocks_like(input.layout(), DType::kInt8, input.dims()));
  }
  const Dims dims(input.dims().begin(), input.dims().end());
  MILLRACE_RETURN_IF_ERROR(out.resize(DType::kInt8, dims, layout));
  const WideLoops* const wide = wide_loops();
  const auto loop = wide == nullptr ? detail::round_to_int8 : wide->round_to_int8;
  const Int8Grid grid{scale_, input_half_even_};
  const auto* const from = stored<float>(input);
  auto* const to = stored<int8_t>(out);
  std::atomic<bool> numbers = true;
  std::atomic<bool> negatives = false;
  device.parallel_for(stored_count(input), kRoundGrain, [&](int64_t begin, int64_t end) {
    const Int8Facts facts = loop(grid, from + begin, to + begin, end - begin);
    if (!facts.numbers) numbers = false;
    if (facts.negatives) negatives = true;
  });
  if (numbers && !negatives) {
    if (layout != nullptr) {
      MILLRACE_ASSIGN_OR_RETURN(layout, blocks_like(input.layout(), DType::kUint8, input.dims()));
    }
    // the same bytes
    MILLRACE_RETURN_IF_ERROR(out.resize(DType::kUint8, dims, layout));
  }
  return numbers.load();
}

Status Int8Operands::round_floats(const Tensor& input, Tensor& out) const {
  const Dims dims(input.dims().begin(), input.dims().end());
  MILLRACE_RETURN_IF_ERROR(out.resize(DType::kFloat32, dims));
  auto* const to = out.data<float>();
  if (input.dtype() == DType::kUint8) {
    const float step = scale_ / kInt8Bins;
    llvm::transform(input.values<uint8_t>(), to,
                    [step](uint8_t integer) { return static_cast<float>(integer) * step; });
    return Ok();
  }
  round_to_grid(input.data<float>(), to, input.numel(), scale_, grid_of(input_half_even_));
  return Ok();
}

Status Int8Operands::rounded_weights(const Tensor& weights, llvm::ArrayRef<float> factors,
                                     Tensor& out) const {
  const Dims dims(weights.dims().begin(), weights.dims().end());
  MILLRACE_RETURN_IF_ERROR(out.resize(DType::kFloat32, dims));
  const Grid grid = grid_of(weights_half_even_);
  auto* const to = out.data<float>();
  for_runs(weights, [&](int64_t channel, int64_t first, int64_t count) {
    const float scale = of_channel(scales_, channel);
    const float factor = factors.empty() ? 1.0F : factors[static_cast<size_t>(channel)];
    for (int64_t i = first; i < first + count; ++i) {
      const float value = weight_at(weights, i);
      to[i] = value * (scale / kInt8Bins);
      if (!are_integers_) round_to_grid(&value, to + i, 1, scale, grid);
      to[i] *= factor;
    }
  });
  return Ok();
}

bool is_usable_scale(float scale) {
  return scale > kNoScale && std::isfinite(scale);
}

StatusOr<std::optional<dnn::Primitive>> if_implemented(StatusOr<dnn::Primitive> made) {
  if (made.ok()) return std::optional(std::move(made).value());
  if (made.status().code() == StatusCode::kUnimplemented) return std::optional<dnn::Primitive>();
  return std::move(made).status();
}

Status unscaled_bias(const Tensor& bias, llvm::ArrayRef<float> scales, Tensor& out) {
  const auto n = static_cast<int64_t>(scales.size());
  MILLRACE_ASSIGN_OR_RETURN(const float* const values, channel_values<float>(&bias, "Bias", n));
  MILLRACE_RETURN_IF_ERROR(out.resize(DType::kFloat32, {n}));
  for (int64_t c = 0; c < n; ++c) out.data<float>()[c] = values[c] / scales[static_cast<size_t>(c)];
  return Ok();
}

}  // namespace millrace::kernels
