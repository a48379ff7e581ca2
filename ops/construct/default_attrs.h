#pragma once

#include "framework/base/status.h"
#include "framework/op.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Adds to an op what the original's front end writes although nobody set it: the defaults of the
/// schema, and the settings of the original's kernels whose default is neither zero nor empty
/// (mkldnn_data_type and the like; without effect here). Attributes that the op has stay.
void add_default_attrs(const OpRegistry& registry, Op& op);

/// Checks numbers and words among the attributes of an op against its schema, so that whoever sets
/// them hears of a wrong one at once. Errors: kInvalidArgument with the op's place, attribute, what
/// was expected and found.
Status check_attr_values(const OpRegistry& registry, const Op& op);

}  // namespace millrace::ops
