#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "io/checkpoint/checkpoint.h"
#include "jobs/checkpoint/servers.h"
#include "ps/table/typed_table.h"

namespace millrace::jobs {

/// Adds the typed tables of a job to the vars, as the embeddings that they replace, also those that
/// have no row yet.
/// \param tables  of the job that wrote the snapshots
/// Errors: kInvalidData for a table that is not among them.
Status add_typed_tables(const std::vector<ps::TypedTable>& tables,
                        const std::vector<io::Checkpoint>& servers,
                        std::map<std::string, JoinedVar>& vars);

/// The embedding of a typed table, f32(declared rows, width): what lookups would get. Rows that no
/// server has yet have the values with which they would begin; that of the padding is zero. Holds
/// the table of one server in memory. Errors: those of reading; kInvalidData for a table that does
/// not fit its settings.
StatusOr<Value> load_typed_table(const ps::TypedTable& table,
                                 const std::vector<io::Checkpoint>& servers);

}  // namespace millrace::jobs
