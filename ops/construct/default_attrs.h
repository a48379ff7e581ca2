#pragma once

#include "framework/op.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Adds to an op what the original's front end writes although nobody set it: the defaults of the
/// schema, and the settings of the original's kernels whose default is neither zero nor empty
/// (mkldnn_data_type and the like; without effect here). Attributes that the op has stay.
void add_default_attrs(const OpRegistry& registry, Op& op);

}  // namespace millrace::ops
