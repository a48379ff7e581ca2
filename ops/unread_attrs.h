#pragma once

#include "framework/base/status.h"
#include "framework/op.h"
#include "ops/op_def.h"

namespace millrace::ops {

/// Refuses an op with an attribute that changes its result and that no kernel reads:
/// - one by which a pass of the original (oneDNN) has put the function of another op into this one,
///   such as fuse_activation; only the kernel of fused_conv2d applies such functions;
/// - a factor of quantized operands, such as Scale_x, unless the schema has it or it is 1;
/// - an attribute of the schema whose value is that of a var, in programs of the newest releases:
///   kernels would take the default for it.
/// Errors: kUnimplemented that names the attribute; the caller adds the location.
/// Source: the extra attributes of release 2.6.2 and its oneDNN passes.
Status check_attrs_are_read(const OpDef& def, const Op& op);

}  // namespace millrace::ops
