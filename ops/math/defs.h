#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Definitions of this folder, one a file; families add several.
OpDef scale();

}  // namespace millrace::ops
