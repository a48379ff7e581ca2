#pragma once

#include <string>

#include "framework/base/status.h"
#include "ops/construct/builder.h"
#include "ops/minimize/options.h"

namespace millrace::ops {

/// Appends the ops of a schedule to the builder's program (role LRSched) and returns the var that
/// holds the rate. All schedules of a program share one step counter, which the first op of the
/// program increments.
///
/// Errors: kInvalidArgument for an invalid number, with the names of schedule and field.
/// Source: spec/backward.md section 8.
StatusOr<std::string> add_schedule(Builder& builder, const Decay& decay);
StatusOr<std::string> add_schedule(Builder& builder, const LinearWarmup& warmup);

/// Declares a constant rate, "learning_rate_<n>", which the startup program sets. \returns its name
StatusOr<std::string> add_constant_rate(Builder& builder, double rate, DType dtype);

}  // namespace millrace::ops
