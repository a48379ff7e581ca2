#pragma once

#include "framework/base/status.h"
#include "framework/op.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Adds the attributes that the original's front end writes by default: the defaults of the schema,
/// and the settings of the original's kernels whose default is neither zero nor empty
/// (mkldnn_data_type and the like, which have no effect here). Does not change attributes that the
/// op has.
void add_default_attrs(const OpRegistry& registry, Op& op);

/// Checks the number and string attributes of an op against the ranges and choices of its schema,
/// so that a wrong value is reported where it is set.
/// Errors: kInvalidArgument with the op's location, the attribute, and the expected and found
/// values.
Status check_attr_values(const OpRegistry& registry, const Op& op);

}  // namespace millrace::ops
