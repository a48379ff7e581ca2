#include "jobs/config/distribution_facts.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/text_form/print.h"
#include "framework/types.h"
#include "jobs/config/typed_tables.h"

namespace millrace::jobs {
namespace {

std::string type_of_facts(const transpiler::VarFacts& var) {
  const auto dtype = static_cast<DType>(var.dtype);
  return fmt::format("{} [{}]", is_valid(dtype) ? dtype_name(dtype) : "unknown",
                     fmt::join(var.shape, ", "));
}

// Settings as in tables.json, in one line. Where rows are kept, and at which addresses, may differ
// between processes.
std::string table_fact(ps::TypedTable table) {
  table.endpoints.clear();
  table.options.disk_path.clear();
  table.options.memory_rows = 0;
  std::string text = typed_tables_json({table});
  std::erase_if(text, [](char c) { return c == '\n' || c == ' '; });
  return fmt::format("typed table {}: {}", table.options.table_id, text);
}

}  // namespace

ps::PlanFacts distribution_facts(const transpiler::SlicesFile& slices,
                                 const std::vector<ps::TypedTable>& tables, size_t server) {
  ps::PlanFacts facts;
  const transpiler::ProgramProperties& properties = slices.properties;
  if (server >= properties.endpoints.size()) return facts;
  facts.push_back(fmt::format("server {} of {}", server, properties.endpoints.size()));
  // State of optimizers is listed only where the programs of servers were written, too.
  for (const transpiler::DistributedVar& var : slices.overview.vars()) {
    if (var.vtype == "Optimizer" || var.endpoint != properties.endpoints[server]) continue;
    facts.push_back(fmt::format("slice {} {} from element {} of {} {}", print_name(var.slice.name),
                                type_of_facts(var.slice), var.offset, print_name(var.origin.name),
                                type_of_facts(var.origin)));
  }
  if (properties.geo)
    facts.push_back(fmt::format("geo with {} trainers, pushes every {} steps",
                                properties.geo->trainers, properties.geo->push_nums));
  for (const std::string& fact : properties.training) facts.push_back(ps::training_fact(fact));
  for (const ps::TypedTable& table : tables) facts.push_back(table_fact(table));
  return facts;
}

}  // namespace millrace::jobs
