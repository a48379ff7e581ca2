#pragma once

#include "framework/program.h"
#include "framework/tensor/value.h"
#include "ops/registry.h"

/// Running a program in float64 that was made for float32.
namespace millrace::executor {

/// Declares every float32 var of the program as float64, and turns the attributes that name an
/// element type (dtype, in_dtype, out_dtype; those left to their default, too) from float32 to
/// float64. Half precisions stay what they are. What an op computes is then up to its kernel.
void declare_in_float64(const ops::OpRegistry& registry, Program& program);

/// A copy of a value in which float32 elements are float64. Errors: kResource.
StatusOr<Value> in_float64(const Value& value);

}  // namespace millrace::executor
