#include "kernels/cpu/nn/fused_parts.h"

#include <cmath>

#include "kernels/cpu/nn/channels.h"

namespace millrace::kernels {

dnn::Rectifier rectifier_of(const std::string& name) {
  if (name == "relu") return dnn::Rectifier::kRelu;
  if (name == "relu6") return dnn::Rectifier::kRelu6;
  return name == "leaky_relu" ? dnn::Rectifier::kLeakyRelu : dnn::Rectifier::kNone;
}

FusedNorm::FusedNorm(const KernelSetup& op)
    : bias_(op.input("Bias")),
      scale_(op.input("Scale")),
      shift_(op.input("Shift")),
      mean_(op.input("Mean")),
      variance_(op.input("Variance")),
      epsilon_(op.attr<float>("epsilon")) {}

Status FusedNorm::fold(const KernelContext& ctx, int64_t n, std::vector<float>& factors,
                       Tensor& sum) const {
  const auto vector = [&](ArgIndex arg, const char* slot) {
    return channel_values<float>(ctx.find_in(arg), slot, n);
  };
  MILLRACE_ASSIGN_OR_RETURN(const float* const bias, vector(bias_, "Bias"));
  MILLRACE_ASSIGN_OR_RETURN(const float* const scale, vector(scale_, "Scale"));
  MILLRACE_ASSIGN_OR_RETURN(const float* const shift, vector(shift_, "Shift"));
  MILLRACE_ASSIGN_OR_RETURN(const float* const mean, needed_values<float>(ctx, mean_, "Mean", n));
  MILLRACE_ASSIGN_OR_RETURN(const float* const variance,
                            needed_values<float>(ctx, variance_, "Variance", n));
  MILLRACE_RETURN_IF_ERROR(sum.resize(DType::kFloat32, {n}));
  factors.resize(static_cast<size_t>(n));
  for (int64_t c = 0; c < n; ++c) {
    const float factor = (scale == nullptr ? 1.0F : scale[c]) / std::sqrt(variance[c] + epsilon_);
    factors[static_cast<size_t>(c)] = factor;
    sum.data<float>()[c] = ((bias == nullptr ? 0.0F : bias[c]) - mean[c]) * factor +
                           (shift == nullptr ? 0.0F : shift[c]);
  }
  return Ok();
}

}  // namespace millrace::kernels
