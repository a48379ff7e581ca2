#pragma once

#include <string>

#include "framework/base/status.h"
#include "ops/construct/builder.h"

/// Arithmetic of learning-rate schedules on vars with one element. Each function appends one op, or
/// a constant and one op, and returns the name of the result. As in the original, temporaries are
/// named "tmp_<n>", and results of layers have names derived from their op type.
namespace millrace::ops::rate {

using Name = StatusOr<std::string>;

/// x * factor + bias
Name scale(Builder& builder, const std::string& x, double factor, double bias = 0);
/// x ^ exponent
Name power(Builder& builder, const std::string& x, double exponent);
/// base ^ x
Name exponential(Builder& builder, double base, const std::string& x);
/// dividend / x
Name quotient(Builder& builder, double dividend, const std::string& x);
Name quotient(Builder& builder, const std::string& x, const std::string& y);
/// min(x, y)
Name minimum(Builder& builder, const std::string& x, const std::string& y);
/// An op with one input: floor, ceil, exp, cos, logical_not. The result is named after the type.
Name unary(Builder& builder, llvm::StringRef type, const std::string& x,
           DType dtype = DType::kFloat32);
/// A comparison with a result named "tmp_<n>".
Name compare(Builder& builder, llvm::StringRef type, const std::string& x, const std::string& y);
/// The layer fill_constant: one float, shape [1]. Takes two numbers of the "fill_constant" counter.
Name constant(Builder& builder, double value, bool force_cpu = false);
/// As constant(), but writes to an existing var.
Status fill(Builder& builder, const std::string& out, double value);
/// A float of rank 0, as operand of an arithmetic operator.
Name scalar(Builder& builder, double value);
Name cast(Builder& builder, const std::string& x, DType from, DType to);
Status assign(Builder& builder, const std::string& from, const std::string& to);

}  // namespace millrace::ops::rate
