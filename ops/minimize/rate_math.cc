#include "ops/minimize/rate_math.h"

namespace millrace::ops::rate {
namespace rate_math {
namespace {

using Names = std::vector<std::string>;

std::string temporary(Builder& builder, DType dtype = DType::kFloat32) {
  return builder.numbered_var("tmp", VarSpec::tensor(dtype, {}));
}

// Appends the op and returns the name of its result.
Name result(Builder& builder, NewOp op, std::string out) {
  op.output("Out", {out});
  StatusOr<Op*> made = builder.append(op);
  if (!made.ok()) return std::move(made).status();
  return out;
}

Name binary(Builder& builder, llvm::StringRef type, const std::string& x, const std::string& y,
            std::string out) {
  NewOp op(type);
  op.input("X", {x}).input("Y", {y}).attr("axis", make_attr(int32_t{-1}));
  return result(builder, std::move(op), std::move(out));
}

NewOp filling(double value, const std::vector<int64_t>& shape) {
  NewOp op("fill_constant");
  op.attr("shape", make_attr(shape))
      .attr("dtype", make_attr(static_cast<int32_t>(DType::kFloat32)))
      .attr("value", make_attr(static_cast<float>(value)));
  return op;
}

// A constant operand. Operators of the original do not write str_value; the layer does.
Name operand(Builder& builder, double value, const std::vector<int64_t>& shape) {
  return result(builder, filling(value, shape), temporary(builder));
}

// Each use of the original's layer takes two numbers of the "fill_constant" counter.
std::string layer_constant_var(Builder& builder) {
  (void)builder.names().next("fill_constant");
  return builder.layer_var("fill_constant");
}

}  // namespace
}  // namespace rate_math

Name scale(Builder& builder, const std::string& x, double factor, double bias) {
  using namespace rate_math;
  NewOp op("scale");
  op.input("X", {x})
      .attr("scale", make_attr(static_cast<float>(factor)))
      .attr("bias", make_attr(static_cast<float>(bias)));
  return result(builder, std::move(op), temporary(builder));
}

Name power(Builder& builder, const std::string& x, double exponent) {
  using namespace rate_math;
  MILLRACE_ASSIGN_OR_RETURN(const std::string y, operand(builder, exponent, {}));
  return binary(builder, "elementwise_pow", x, y, temporary(builder));
}

Name exponential(Builder& builder, double base, const std::string& x) {
  using namespace rate_math;
  MILLRACE_ASSIGN_OR_RETURN(const std::string y, operand(builder, base, {1}));
  return binary(builder, "elementwise_pow", y, x, temporary(builder));
}

Name quotient(Builder& builder, double dividend, const std::string& x) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string y, rate_math::operand(builder, dividend, {1}));
  return quotient(builder, y, x);
}

Name quotient(Builder& builder, const std::string& x, const std::string& y) {
  using namespace rate_math;
  return binary(builder, "elementwise_div", x, y, temporary(builder));
}

Name minimum(Builder& builder, const std::string& x, const std::string& y) {
  return rate_math::binary(
      builder, "elementwise_min", x, y,
      builder.numbered_var("elementwise_min", VarSpec::tensor(DType::kFloat32, {})));
}

Name unary(Builder& builder, llvm::StringRef type, const std::string& x, DType dtype) {
  NewOp op(type);
  op.input("X", {x});
  return rate_math::result(builder, std::move(op), builder.layer_var(type, dtype));
}

Name compare(Builder& builder, llvm::StringRef type, const std::string& x, const std::string& y) {
  using namespace rate_math;
  return binary(builder, type, x, y, temporary(builder, DType::kBool));
}

Name constant(Builder& builder, double value, bool force_cpu) {
  using namespace rate_math;
  NewOp op = filling(value, {1});
  op.attr("str_value", make_attr(number_text(value))).attr("force_cpu", make_attr(force_cpu));
  return result(builder, std::move(op), layer_constant_var(builder));
}

Status fill(Builder& builder, const std::string& out, double value) {
  using namespace rate_math;
  for (int i = 0; i < 2; ++i) (void)builder.names().next("fill_constant");
  NewOp op = filling(value, {1});
  op.attr("str_value", make_attr(number_text(value)));
  const Name made = result(builder, std::move(op), out);
  return made.status();
}

Name scalar(Builder& builder, double value) {
  return rate_math::operand(builder, value, {});
}

Name cast(Builder& builder, const std::string& x, DType from, DType to) {
  NewOp op("cast");
  op.input("X", {x})
      .attr("in_dtype", make_attr(static_cast<int32_t>(from)))
      .attr("out_dtype", make_attr(static_cast<int32_t>(to)));
  return rate_math::result(builder, std::move(op), builder.layer_var("cast", to));
}

Status assign(Builder& builder, const std::string& from, const std::string& to) {
  NewOp op("assign");
  op.input("X", {from});
  const Name made = rate_math::result(builder, std::move(op), to);
  return made.status();
}

}  // namespace millrace::ops::rate
