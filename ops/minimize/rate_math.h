#pragma once

#include <string>

#include "framework/base/status.h"
#include "ops/construct/builder.h"

/// Arithmetic of schedules on vars with one element: each function appends one op, or a constant
/// and one op, and returns the name of the result. Temporaries are named "tmp_<n>", results of
/// layers after their op, as in the original.
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
/// The smaller one.
Name minimum(Builder& builder, const std::string& x, const std::string& y);
/// An op of one input that is named after its type: floor, ceil, exp, cos, logical_not.
Name unary(Builder& builder, llvm::StringRef type, const std::string& x,
           DType dtype = DType::kFloat32);
/// A comparison with a result named "tmp_<n>".
Name compare(Builder& builder, llvm::StringRef type, const std::string& x, const std::string& y);
/// The layer fill_constant: one float, shape [1]. It uses up two names.
Name constant(Builder& builder, double value, bool force_cpu = false);
/// The same into a var that exists.
Status fill(Builder& builder, const std::string& out, double value);
/// A float without dims, as the operand of an operator.
Name scalar(Builder& builder, double value);
Name cast(Builder& builder, const std::string& x, DType from, DType to);
Status assign(Builder& builder, const std::string& from, const std::string& to);

}  // namespace millrace::ops::rate
