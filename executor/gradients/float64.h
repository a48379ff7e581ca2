#pragma once

#include "framework/program.h"
#include "framework/tensor/value.h"
#include "ops/registry.h"

/// Runs a float32 program in float64.
namespace millrace::executor {

/// Declares every float32 var of the program as float64, and changes attributes that name an
/// element type (dtype, in_dtype, out_dtype, including defaults) from float32 to float64. Half
/// precision types are not changed. Whether an op then computes in float64 depends on its kernel.
void declare_in_float64(const ops::OpRegistry& registry, Program& program);

/// A copy of a value with float32 elements converted to float64. Errors: kResource.
StatusOr<Value> in_float64(const Value& value);

}  // namespace millrace::executor
