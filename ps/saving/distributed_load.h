#pragma once

#include <string>

#include "executor/executor.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::ps {

/// load_persistables on a server: loads the server's vars from a folder written by
/// save_distributed_persistables() or by a single process. Slices are read directly from their
/// offset in the file, without reading the rest. Rows of the distributed table come from
/// `__lookup_table__/<table>_<n>`, regardless of the number of servers that wrote them, or else
/// from the file of the whole table. Other persistable vars of the program are loaded if the folder
/// has a file for them.
///
/// \param program  the server's; its listen_and_serv names the endpoint
/// Source: spec/distributed_io.md section 4.
/// Errors: kNotFound with var and file; kInvalidData for another dtype or other dims, a file that
/// ends early, and a table with missing or repeated rows.
Status load_server_persistables(const transpiler::SlicesFile& slices, const Program& program,
                                const std::string& folder, Scope& scope,
                                const executor::ExecutorOptions& options);

}  // namespace millrace::ps
