#include "ops/activation/defs.h"
#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"

namespace millrace::ops {
namespace {

constexpr GradReads kX = GradReads::kX;
constexpr GradReads kOut = GradReads::kOut;
constexpr GradReads kNothing = GradReads::kNothing;

void add_powers_and_logs(OpRegistry& registry) {
  registry.add(unary_op("exp", "exp_grad", kOut, "e to the power of x"));
  registry.add(unary_op("expm1", "expm1_grad", kOut, "exp(x) - 1"));
  registry.add(unary_op("log", "log_grad", kX, "natural logarithm"));
  registry.add(unary_op("log2", "log2_grad", kX, "logarithm to base 2"));
  registry.add(unary_op("log10", "log10_grad", kX, "logarithm to base 10"));
  registry.add(unary_op("log1p", "log1p_grad", kX, "log(1 + x)"));
  registry.add(unary_op("logit", "logit_grad", kX, "log(x / (1 - x))")
                   .attr("eps", 1e-6F, "x is cut to [eps, 1 - eps] before"));
  registry.add(unary_op("sqrt", "sqrt_grad", kOut, "square root"));
  registry.add(unary_op("rsqrt", "rsqrt_grad", kOut, "1 / sqrt(x)"));
  registry.add(unary_op("square", "square_grad", kX, "x * x"));
  registry.add(unary_op("reciprocal", "reciprocal_grad", kOut, "1 / x"));
  registry.add(unary_op("erf", "erf_grad", kX, "error function"));
  registry.add(unary_op("lgamma", "lgamma_grad", kX, "logarithm of the absolute gamma function"));
  registry.add(unary_op("digamma", "digamma_grad", kX, "derivative of lgamma"));
}

void add_trigonometry(OpRegistry& registry) {
  registry.add(unary_op("sin", "sin_grad", kX, "sine, x in radians"));
  registry.add(unary_op("cos", "cos_grad", kX, "cosine, x in radians"));
  registry.add(unary_op("tan", "tan_grad", kX, "tangent, x in radians"));
  registry.add(unary_op("asin", "asin_grad", kX, "inverse sine"));
  registry.add(unary_op("acos", "acos_grad", kX, "inverse cosine"));
  registry.add(unary_op("atan", "atan_grad", kX, "inverse tangent"));
  registry.add(unary_op("sinh", "sinh_grad", kX, "hyperbolic sine"));
  registry.add(unary_op("cosh", "cosh_grad", kX, "hyperbolic cosine"));
  registry.add(unary_op("asinh", "asinh_grad", kX, "inverse hyperbolic sine"));
  registry.add(unary_op("acosh", "acosh_grad", kX, "inverse hyperbolic cosine"));
  registry.add(unary_op("atanh", "atanh_grad", kX, "inverse hyperbolic tangent"));
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

// The gradients of the rounding ones are zero.
void add_parts(OpRegistry& registry) {
  registry.add(unary_op("abs", "abs_grad", kX, "absolute value").infer(infer_abs));
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

void add_function_ops(OpRegistry& registry) {
  add_powers_and_logs(registry);
  add_trigonometry(registry);
  add_parts(registry);
  add_tests(registry);
}

}  // namespace millrace::ops
