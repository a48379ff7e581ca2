#pragma once

#include <cstddef>
#include <vector>

#include "ps/slices/plan_facts.h"
#include "ps/table/typed_table.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::jobs {

/// What slices.json and tables.json say about one server: its number, the slices of parameters that
/// it holds with the rows of the whole parameters, settings of geo jobs, the mode, number of
/// trainers and optimizers, and the typed tables. A
/// trainer and a server of one distribution derive the same facts, whatever their endpoints are.
/// \param server  index among the endpoints
/// \returns no facts if there is no such server. Thread-safety: pure.
ps::PlanFacts distribution_facts(const transpiler::SlicesFile& slices,
                                 const std::vector<ps::TypedTable>& tables, size_t server);

}  // namespace millrace::jobs
