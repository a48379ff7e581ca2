#pragma once

#include <string>

#include "fleet/strategy/config_dict.h"
#include "framework/base/status.h"
#include "ops/minimize/options.h"

namespace millrace::fleet {

/// What the tables of a DownpourSGD description are as tables of a fleet job.
struct DownpourTables {
  ConfigDict sparse;            ///< settings of the sparse table, as in fleet_desc_configs
  bool scales_by_show = false;  ///< the sparse accessor divides gradients by shows
  MinimizeOptions updates;      ///< of the dense table: sgd, or adam for adam_d2sum
  bool adam_d2sum = false;
  /// Decays of adam_d2sum.
  double momentum = 0;
  double decay = 0;
  double epsilon = 0;
};

/// Translates a description.
/// \param description  text of a PSParameter, from minimize_downpour() for one loss
/// Errors: kInvalidArgument for malformed text; kUnimplemented for accessors, rules, decays,
/// windows, skipped ops or tables that servers and workers of fleet jobs do not have.
StatusOr<DownpourTables> translate_tables(const std::string& description);

/// Writes the decays of adam_d2sum into the description of a fleet job's tables (ps_desc.txt).
/// Errors: kInternal if the dense table has no such columns.
StatusOr<std::string> with_decays(const DownpourTables& tables, const std::string& ps_desc);

}  // namespace millrace::fleet
