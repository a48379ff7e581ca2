#pragma once

#include <string>
#include <vector>

#include "fleet/strategy/config_dict.h"
#include "framework/base/status.h"

namespace millrace::pslib_desc {
class TableParameter;
}

namespace millrace::fleet {

/// Writes the settings of a DownpourSGD job's sparse table, with defaults for missing ones, into
/// its description. Errors: kInvalidArgument naming a key that is unknown or has an invalid value.
/// Source: spec/fleet.md section 8.
///
/// \param remarks  receives a line for each setting that neither the accessor nor its rules read
Status set_sparse_configs(const ConfigDict& configs, pslib_desc::TableParameter& out,
                          std::vector<std::string>& remarks);

}  // namespace millrace::fleet
