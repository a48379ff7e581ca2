#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ps/table/typed_table.h"

namespace millrace::tools {

/// Turns embeddings of a training program into typed tables, as the option --sparse-tables says.
///
/// \param text  JSON: settings by name of the parameter, each with the names of the original's
///              tables (docs/tables.md); what is left out follows from the program
/// \param endpoints  of the servers, in order
/// Errors: kInvalidArgument naming the setting; those of use_typed_table().
StatusOr<std::vector<ps::TypedTable>> make_typed_tables(const std::string& text,
                                                        const std::vector<std::string>& endpoints,
                                                        Program& main, Program& startup);

/// The text of tables.json, which lies beside slices.json.
std::string typed_tables_json(const std::vector<ps::TypedTable>& tables);

/// Reads the tables.json beside a job's slices.json; none where there is no such file.
/// Errors: kInvalidData naming file and member; kIo.
StatusOr<std::vector<ps::TypedTable>> read_typed_tables(const std::string& slices);

}  // namespace millrace::tools
