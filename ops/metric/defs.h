#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Definitions of this folder, one a file.
OpDef accuracy();
OpDef auc();
OpDef mean_iou();
OpDef precision_recall();

}  // namespace millrace::ops
