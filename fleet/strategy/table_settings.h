#pragma once

#include <string>
#include <vector>

#include "fleet/strategy/config_dict.h"
#include "framework/base/status.h"

namespace millrace::fleet_desc {
class TableParameter;
}

namespace millrace::fleet {

/// Checks the settings of a sparse table, with the keys of the original: sparse_*, embed_sparse_*
/// (the first weight of a row), embedx_sparse_* (the embedding after it), feature_learning_rate,
/// nodeid_slot. Table classes: DownpourSparseTable, DownpourSparseSSDTable. Accessors:
/// DownpourCtrAccessor, DownpourCtrDoubleAccessor, DownpourCtrDymfAccessor, DownpourUnitAccessor,
/// DownpourDoubleUnitAccessor, DownpourSparseValueAccessor. Rules: naive, adagrad, adagrad_v2,
/// std_adagrad, adam, shared_adam.
///
/// Errors: kInvalidArgument naming table and key. Source: spec/fleet.md section 3.
Status check_table_settings(const std::string& table, const ConfigDict& configs);

/// Writes the settings, with defaults for missing ones, into a table's description.
/// \param use_cvm  false: rows without show and click
/// \param remarks  receives settings that are never read
/// Errors: as above; kUnimplemented for filters of slots.
Status apply_table_settings(const std::string& table, const ConfigDict& configs, bool use_cvm,
                            fleet_desc::TableParameter& out, std::vector<std::string>& remarks);

}  // namespace millrace::fleet
