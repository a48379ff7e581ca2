#pragma once

#include <string>

#include "transpiler/distribute/cost_model.h"
#include "transpiler/vars_distributed.h"

/// The output of transpile-program --explain: where every slice is, why, which op updates it, and
/// what that costs the servers.
namespace millrace::transpiler {

/// Human-readable text: a line per parameter with its update, rate and reason; a line per slice of
/// the sliced parameters; then cost_table(). Parameters are in the order of the overview.
/// \param report  null if no server has a cost
std::string explain_text(const VarsDistributed& overview, const CostInput& input,
                         const CostReport* report);
/// The same as one JSON object: schema "millrace.explain" (name, version), "cost" (see cost_json();
/// null without a report), "params", "distributed_tables" (one member per server). Sizes are in
/// bytes, offsets in elements.
std::string explain_json(const VarsDistributed& overview, const CostInput& input,
                         const CostReport* report);

}  // namespace millrace::transpiler
