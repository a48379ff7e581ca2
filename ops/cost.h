#pragma once

#include <cstdint>

#include "framework/op.h"
#include "framework/var.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Estimated floating-point operations of one run of the op, from the declared dims of its vars
/// (unknown dims count as 1). Ops without a flops function count one operation per element of their
/// outputs; unknown op types count 0.
double estimate_flops(const OpRegistry& registry, const Op& op);

/// Bytes of a dense var with the declared dims and dtype. Unknown dims count as 1; a var that is
/// not a tensor has 0 bytes.
int64_t tensor_bytes(const VarSpec& spec);

}  // namespace millrace::ops
