#pragma once

#include <string>
#include <vector>

#include "fleet/job/common_accessor.h"
#include "framework/base/status.h"

namespace millrace::fleet_desc {
class TableAccessorParameter;
class TableParameter;
}  // namespace millrace::fleet_desc

namespace millrace::fleet {

/// Fills in the settings of a sparse table that are not set: class SparseAccessor, widths from the
/// embedding, and the adam rule with the optimizer's numbers. As in the original, the decays of an
/// adam rule are those of the program's optimizer, or 0.9, 0.999 and 1e-8 if settings name them.
///
/// \param common   the result of describe_optimizer() for the table
/// \param remarks  receives a line for settings that were replaced
/// Errors: kInvalidArgument if the accessor's widths do not match the embedding; kUnimplemented for
/// an initializer that tables do not support. Source: spec/fleet.md section 5.
Status complete_accessor(const CommonAccessor& common, const TableFacts& table,
                         fleet_desc::TableAccessorParameter& out,
                         std::vector<std::string>& remarks);

/// True if only the program's optimizer determines how rows of the table are updated. In that case,
/// the format has an adam rule whatever the optimizer is (`common` names it); servers run the
/// optimizer, without bounds.
bool follows_optimizer(const fleet_desc::TableParameter& table);

}  // namespace millrace::fleet
