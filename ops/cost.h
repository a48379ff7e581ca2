#pragma once

#include <cstdint>

#include "framework/op.h"
#include "framework/var.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Floating-point operations of one run of the op, from the dims its vars declare (unknown dims
/// count as 1). Ops without an estimate of their own count one operation per element of their
/// outputs; unknown op types count 0.
double estimate_flops(const OpRegistry& registry, const Op& op);

/// Bytes of a dense var of the declared dims and dtype; unknown dims count as 1, vars without
/// tensor as 0.
int64_t tensor_bytes(const VarSpec& spec);

}  // namespace millrace::ops
