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

/// Fills in what a sparse table's settings leave open: class SparseAccessor, widths after the
/// embedding, and the adam rule with the optimizer's numbers. As in the original, the decays of an
/// adam rule are those of the program's optimizer, or 0.9, 0.999 and 1e-8 where settings name them.
///
/// \param common   what describe_optimizer() said of the table
/// \param remarks  gets a line for settings that were replaced
/// Errors: kInvalidArgument where the accessor's widths do not fit the embedding; kUnimplemented
/// for an initialiser that tables do not know. Source: spec/fleet.md section 5.
Status complete_accessor(const CommonAccessor& common, const TableFacts& table,
                         fleet_desc::TableAccessorParameter& out,
                         std::vector<std::string>& remarks);

/// Whether nothing but the program's optimizer says how rows of the table are updated. The format
/// then states an adam rule whatever that optimizer is (`common` names it); servers run the
/// optimizer, without bounds.
bool follows_optimizer(const fleet_desc::TableParameter& table);

}  // namespace millrace::fleet
