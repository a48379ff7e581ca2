#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ps/table/typed_table.h"

namespace millrace::jobs {

/// Turns embeddings of a training program into typed tables, as --sparse-tables specifies.
///
/// \param text  JSON: settings by name of the parameter; settings have the names of the original's
/// tables (docs/tables.md), and defaults come from the program
/// \param endpoints  of the servers, in order
/// Errors: kInvalidArgument naming the setting; those of use_typed_table().
StatusOr<std::vector<ps::TypedTable>> make_typed_tables(const std::string& text,
                                                        const std::vector<std::string>& endpoints,
                                                        Program& main, Program& startup);

/// The text of tables.json, a file next to slices.json.
std::string typed_tables_json(const std::vector<ps::TypedTable>& tables);

/// What the floats of a table's rows are: accessor, width and rules, by the names of tables.json.
/// Rows of tables for which it differs must not be mixed. Thread-safety: pure.
std::string row_form(const ps::TypedTable& table);

/// Reads the tables.json next to a job's slices.json; empty if there is no such file.
/// Errors: kInvalidData naming file and member; kIo.
StatusOr<std::vector<ps::TypedTable>> read_typed_tables(const std::string& slices);

}  // namespace millrace::jobs
