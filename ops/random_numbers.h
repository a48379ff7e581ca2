#pragma once

#include "ops/op_def.h"

namespace millrace::ops {

/// True if the op draws random numbers, so that its results depend on which ops have drawn before
/// it, and differ from process to process: ops with an attribute for a seed, and those that only
/// have the device's numbers. Gradient ops have the attribute but draw none.
bool draws_random_numbers(const OpDef& def);

}  // namespace millrace::ops
