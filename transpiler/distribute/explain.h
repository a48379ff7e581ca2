#pragma once

#include <string>

#include "transpiler/distribute/cost_model.h"
#include "transpiler/vars_distributed.h"

/// What transpile-program --explain shows: where every slice went, why, who updates it, and what
/// that costs the servers.
namespace millrace::transpiler {

/// For people: a line a parameter with its update, rate and reason, a line a slice of those that
/// are cut, then cost_table(). Parameters in order of the overview. \param report  null where no
/// server has a cost
std::string explain_text(const VarsDistributed& overview, const CostInput& input,
                         const CostReport* report);
/// The same as one JSON object: schema "millrace.explain" (name, version), "cost" (see
/// cost_json(); null without a report), "params",
/// "distributed_tables" (a member a server). Bytes are bytes, offsets elements.
std::string explain_json(const VarsDistributed& overview, const CostInput& input,
                         const CostReport* report);

}  // namespace millrace::transpiler
