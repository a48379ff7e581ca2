#include "ops/activation/unary_op.h"
#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

constexpr GradReads kFunctionsX = GradReads::kX;
constexpr GradReads kFunctionsOut = GradReads::kOut;
constexpr GradReads kNothing = GradReads::kNothing;

void add_powers_and_logs(OpRegistry& registry) {
  registry.add(unary_op("exp", "exp_grad", kFunctionsOut, "e to the power of x"));
  registry.add(unary_op("expm1", "expm1_grad", kFunctionsOut, "exp(x) - 1"));
  registry.add(unary_op("log", "log_grad", kFunctionsX, "natural logarithm"));
  registry.add(unary_op("log2", "log2_grad", kFunctionsX, "logarithm to base 2"));
  registry.add(unary_op("log10", "log10_grad", kFunctionsX, "logarithm to base 10"));
  registry.add(unary_op("log1p", "log1p_grad", kFunctionsX, "log(1 + x)"));
  registry.add(unary_op("logit", "logit_grad", kFunctionsX, "log(x / (1 - x))")
                   .attr("eps", 1e-6F, "x is first clipped to [eps, 1 - eps]"));
  registry.add(unary_op("sqrt", "sqrt_grad", kFunctionsOut, "square root"));
  registry.add(unary_op("rsqrt", "rsqrt_grad", kFunctionsOut, "1 / sqrt(x)"));
  registry.add(unary_op("square", "square_grad", kFunctionsX, "x * x"));
  registry.add(unary_op("reciprocal", "reciprocal_grad", kFunctionsOut, "1 / x"));
  registry.add(unary_op("erf", "erf_grad", kFunctionsX, "error function"));
  registry.add(
      unary_op("lgamma", "lgamma_grad", kFunctionsX, "logarithm of the absolute gamma function"));
  registry.add(unary_op("digamma", "digamma_grad", kFunctionsX, "derivative of lgamma"));
}

void add_trigonometry(OpRegistry& registry) {
  registry.add(unary_op("sin", "sin_grad", kFunctionsX, "sine, x in radians"));
  registry.add(unary_op("cos", "cos_grad", kFunctionsX, "cosine, x in radians"));
  registry.add(unary_op("tan", "tan_grad", kFunctionsX, "tangent, x in radians"));
  registry.add(unary_op("asin", "asin_grad", kFunctionsX, "inverse sine"));
  registry.add(unary_op("acos", "acos_grad", kFunctionsX, "inverse cosine"));
  registry.add(unary_op("atan", "atan_grad", kFunctionsX, "inverse tangent"));
  registry.add(unary_op("sinh", "sinh_grad", kFunctionsX, "hyperbolic sine"));
  registry.add(unary_op("cosh", "cosh_grad", kFunctionsX, "hyperbolic cosine"));
  registry.add(unary_op("asinh", "asinh_grad", kFunctionsX, "inverse hyperbolic sine"));
  registry.add(unary_op("acosh", "acosh_grad", kFunctionsX, "inverse hyperbolic cosine"));
  registry.add(unary_op("atanh", "atanh_grad", kFunctionsX, "inverse hyperbolic tangent"));
}

Status infer_abs(InferContext& ctx) {
  ctx.set_output("Out", without_offsets(ctx.input("X")));
  return Ok();
}

Status infer_test(InferContext& ctx) {
  VarMeta meta = without_offsets(ctx.input("X"));
  meta.dtype = DType::kBool;
  ctx.set_output("Out", std::move(meta));
  return Ok();
}

// The gradients of the rounding functions are zero.
void add_parts(OpRegistry& registry) {
  registry.add(unary_op("abs", "abs_grad", kFunctionsX, "absolute value").infer(infer_abs));
  registry.add(unary_op("floor", "floor_grad", kNothing, "largest integer <= x"));
  registry.add(unary_op("ceil", "ceil_grad", kNothing, "smallest integer >= x"));
  registry.add(unary_op("round", "round_grad", kNothing, "nearest integer, halves away from 0"));
  registry.add(unary_op("trunc", "trunc_grad", kNothing, "integer part, towards 0"));
}

void add_tests(OpRegistry& registry) {
  const auto add = [&](llvm::StringRef type, llvm::StringRef doc) {
    registry.add(OpDef(type)
                     .doc(doc)
                     .input("X", "any shape")
                     .output("Out", "bool, shape and LoD of X")
                     .infer(infer_test)
                     .flops(elementwise_flops));
  };
  add("isfinite_v2", "whether each element is neither infinite nor NaN");
  add("isinf_v2", "whether each element is infinite");
  add("isnan_v2", "whether each element is NaN");
}

}  // namespace

void add_activation_functions(OpRegistry& registry) {
  add_powers_and_logs(registry);
  add_trigonometry(registry);
  add_parts(registry);
  add_tests(registry);
}

}  // namespace millrace::ops
