#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Op definitions of this folder, one per file.
OpDef accuracy();
OpDef auc();
OpDef detection_map();
OpDef mean_iou();
OpDef precision_recall();
OpDef positive_negative_pair();

}  // namespace millrace::ops
