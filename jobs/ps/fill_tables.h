#pragma once

#include <cstddef>
#include <string>

#include <llvm/ADT/ArrayRef.h>

#include "executor/executor.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "ps/table/table_handler.h"
#include "ps/table/typed_table.h"

namespace millrace::jobs {

/// Loads the rows of typed tables that the parameters contain and that belong to one server.
/// \param whole   embeddings f32(rows, width) by name of the parameter; the row number is the key
/// \param server  index of the server among those of the tables
/// \param log     receives a warning for each embedding without rows, which begins with new ones
/// Errors: kInvalidData for an embedding of another type or shape.
Status fill_tables(const executor::NamedValues& whole, llvm::ArrayRef<ps::TypedTable> tables,
                   size_t server, ps::TableHandler& handler, const LogSink& log);

/// The same from a folder with one file per var. \param all  an embedding without a file is an
/// error. Errors: also kNotFound for an embedding without a file; those of reading.
Status fill_tables_from_folder(const std::string& folder, llvm::ArrayRef<ps::TypedTable> tables,
                               bool all, size_t server, ps::TableHandler& handler,
                               const LogSink& log);

}  // namespace millrace::jobs
