#pragma once

#include <map>
#include <string>

#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::ps {

/// Copies whole variables into a server's scope, as far as the server holds them: slices as listed
/// in the overview, rows of the distributed table, and other persistable vars of the server's
/// program by name. Variables that the server does not hold are ignored.
///
/// \param program   the server's; its listen_and_serv names the endpoint
/// \param whole     by original name
/// Errors: kInvalidData naming variable, expected and found, also for other dims with as many
/// elements; kInvalidProgram for a program without
/// listen_and_serv.
Status load_slices(const transpiler::SlicesFile& slices, const Program& program,
                   const std::map<std::string, Value>& whole, Scope& scope);

/// Checks the rows of the distributed table in a server's scope against its program: their type and
/// width, and how many the whole table has. Does nothing in a job without such a table. Errors:
/// kInvalidData.
Status check_loaded_table(const transpiler::SlicesFile& slices, const Program& program,
                          const Scope& scope);

/// Sets the row numbers of a server's distributed table, which its startup program does not know.
/// Does nothing in a job without such a table. Errors: as above.
Status number_table_rows(const transpiler::SlicesFile& slices, const Program& program,
                         Scope& scope);

/// The listen_and_serv op of a server program. Errors: kInvalidProgram if there is none.
StatusOr<const Op*> find_serve_op(const Program& program);

}  // namespace millrace::ps
