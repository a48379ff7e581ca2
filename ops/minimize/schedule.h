#pragma once

#include <string>

#include "framework/base/status.h"
#include "ops/construct/builder.h"
#include "ops/minimize/options.h"

namespace millrace::ops {

/// Appends the ops of a schedule to the builder's program (role LRSched) and returns the var that
/// holds the rate. All schedules of a program share one step counter, which its first op
/// increments.
///
/// Errors: kInvalidArgument for numbers that make no schedule, naming schedule and field.
/// Source: spec/backward.md section 8.
StatusOr<std::string> add_schedule(Builder& builder, const Decay& decay);
StatusOr<std::string> add_schedule(Builder& builder, const LinearWarmup& warmup);

/// Declares the rate that stays the same: "learning_rate_<n>", filled by the startup program.
StatusOr<std::string> add_constant_rate(Builder& builder, double rate, DType dtype);

}  // namespace millrace::ops
