#include "ops/activation/unary_op.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

constexpr GradReads kActivationsX = GradReads::kX;
constexpr GradReads kActivationsOut = GradReads::kOut;
constexpr GradReads kBoth = GradReads::kBoth;

// Piecewise linear activations, and those defined by thresholds.
void add_rectifiers(OpRegistry& registry) {
  registry.add(unary_op("relu", "relu_grad", kActivationsOut, "max(x, 0)"));
  registry.add(unary_op("relu6", "relu6_grad", kActivationsOut, "min(max(x, 0), threshold)")
                   .attr("threshold", 6.0F, "upper bound; always 6 in 2.x"));
  registry.add(
      unary_op("leaky_relu", "leaky_relu_grad", kActivationsX, "x if x >= 0 else alpha * x")
          .attr("alpha", 0.02F, "slope below zero"));
  registry.add(unary_op("brelu", "brelu_grad", kActivationsX, "min(max(x, t_min), t_max)")
                   .attr("t_min", 0.0F, "lower bound")
                   .attr("t_max", 24.0F, "upper bound"));
  registry.add(unary_op("thresholded_relu", "thresholded_relu_grad", kActivationsX,
                        "x if x > threshold else 0")
                   .attr("threshold", 1.0F, "largest x whose result is 0"));
  registry.add(
      unary_op("hard_shrink", "hard_shrink_grad", kActivationsX, "x if abs(x) > threshold else 0")
          .attr("threshold", 0.5F, "half the width of the zero band"));
  registry.add(unary_op("softshrink", "softshrink_grad", kActivationsX,
                        "x moved towards zero by lambda, else 0")
                   .attr("lambda", 0.5F, "half the width of the zero band")
                   .range(0));
  registry.add(unary_op("hard_sigmoid", "hard_sigmoid_grad", kActivationsOut,
                        "slope * x + offset, clipped to [0, 1]")
                   .attr("slope", 0.2F, "slope of the linear part")
                   .attr("offset", 0.5F, "value at 0"));
  registry.add(unary_op("hard_swish", "hard_swish_grad", kActivationsX,
                        "x * min(max(x + offset, 0), threshold) / scale")
                   .attr("threshold", 6.0F, "upper bound of the gate before scaling")
                   .attr("scale", 6.0F, "divisor of the gate")
                   .attr("offset", 3.0F, "shift of the gate"));
}

// Smooth activations.
void add_smooth(OpRegistry& registry) {
  registry.add(unary_op("sigmoid", "sigmoid_grad", kActivationsOut, "1 / (1 + exp(-x))"));
  registry.add(unary_op("logsigmoid", "logsigmoid_grad", kActivationsX, "log(1 / (1 + exp(-x)))"));
  registry.add(unary_op("tanh", "tanh_grad", kActivationsOut, "hyperbolic tangent"));
  registry.add(unary_op("tanh_shrink", "tanh_shrink_grad", kActivationsX, "x - tanh(x)"));
  registry.add(unary_op("stanh", "stanh_grad", kActivationsX, "scale_b * tanh(scale_a * x)")
                   .attr("scale_a", 0.67F, "factor of x")
                   .attr("scale_b", 1.7159F, "factor of the result"));
  registry.add(unary_op("softsign", "softsign_grad", kActivationsX, "x / (1 + abs(x))"));
  registry.add(unary_op("softplus", "softplus_grad", kActivationsX,
                        "log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold")
                   .attr("beta", 1.0F, "sharpness")
                   .attr("threshold", 20.0F, "where the function becomes linear"));
  registry.add(unary_op("soft_relu", "soft_relu_grad", kActivationsOut,
                        "log(1 + exp(x clipped to [-threshold, threshold]))")
                   .attr("threshold", 40.0F, "bound of x"));
  registry.add(unary_op("elu", "elu_grad", kBoth, "x if x > 0 else alpha * (exp(x) - 1)")
                   .attr("alpha", 1.0F, "size of the negative part"));
  registry.add(unary_op("celu", "celu_grad", kActivationsX,
                        "max(0, x) + min(0, alpha * (exp(x / alpha) - 1))")
                   .attr("alpha", 1.0F, "size of the negative part, not 0"));
  registry.add(unary_op("selu", "selu_grad", kActivationsOut,
                        "scale * (x if x > 0 else alpha * (exp(x) - 1))")
                   .attr("scale", 1.0507009873554805F, "factor of the result")
                   .attr("alpha", 1.6732632423543772F, "size of the negative part"));
  registry.add(
      unary_op("gelu", "gelu_grad", kActivationsX, "x times the normal distribution function of x")
          .attr("approximate", false, "use the formula with tanh"));
  registry.add(unary_op("silu", "silu_grad", kBoth, "x * sigmoid(x)"));
  registry.add(unary_op("swish", "swish_grad", kActivationsX, "x * sigmoid(beta * x)")
                   .attr("beta", 1.0F, "factor in the gate; always 1 in 2.x"));
  registry.add(unary_op("mish", "mish_grad", kActivationsX, "x * tanh(softplus(x))")
                   .attr("threshold", 20.0F, "where softplus becomes linear"));
}

}  // namespace

void add_activation_activations(OpRegistry& registry) {
  add_rectifiers(registry);
  add_smooth(registry);
}

}  // namespace millrace::ops
