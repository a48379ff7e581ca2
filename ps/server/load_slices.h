#pragma once

#include <map>
#include <string>

#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::ps {

/// Puts what a server holds of whole variables into its scope: slices by the overview, rows of the
/// distributed table, and everything else that has the name of a persistable var of the server's
/// program. Variables that the server does not hold are left alone.
///
/// \param program   the server's; its listen_and_serv names the endpoint
/// \param whole     by original name
/// Errors: kInvalidData naming variable, expected and found; kInvalidProgram for a program that
/// serves nothing.
Status load_slices(const transpiler::SlicesFile& slices, const Program& program,
                   const std::map<std::string, Value>& whole, Scope& scope);

/// Gives the distributed table of a server, as its startup program leaves it, its row numbers.
/// Nothing happens in a job without such a table. Errors: as above.
Status number_table_rows(const transpiler::SlicesFile& slices, const Program& program,
                         Scope& scope);

/// The op of a server program that serves. Errors: kInvalidProgram if there is none.
StatusOr<const Op*> find_serve_op(const Program& program);

}  // namespace millrace::ps
