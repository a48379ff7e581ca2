#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/file.h"
#include "framework/base/status.h"
#include "ps/table/dense_table.h"
#include "ps/table/sparse_table.h"

namespace millrace::ps {

/// Position of a server among the servers of a table.
struct TableShare {
  int64_t server = 0;
  int64_t servers = 1;
  int64_t shard_num = 1;  ///< sparse tables: determines the server of a key (ps/table/routing.h)
};

/// Saving of a job's tables as files. Every server writes its rows (ps/table/table_files.h) and
/// then `<id>/layout` with the number of servers, so that another number of servers can tell which
/// files make up the table, and with the name of the table.
///
/// \param folder  for all tables; each table has a subfolder named by its number
/// \param mode    as in the original's save (Accessor::is_saved()); 0: everything
/// Errors: kUsage for a file that exists and may not be replaced; those of writing.
Status save_table(SparseTable& table, const std::string& folder, const TableShare& share, int mode,
                  Replace replace);
Status save_table(DenseTable& table, const std::string& folder, const TableShare& share,
                  Replace replace);

/// True if the folder has files of any table.
bool has_tables(const std::string& folder);

/// The files that load_table() would read. Errors: those of load_table() that prevent listing them.
StatusOr<std::vector<std::string>> table_parts(const std::string& folder, int table_id,
                                               const TableShare& share);

/// Loads the rows of this server, replacing the contents of the table. If the number of servers is
/// the same as at the save, each reads only its own files. Otherwise each reads the files of all
/// servers, which must be in the folder.
/// Errors: kNotFound with the missing file; kInvalidData for the rows of a table of another name,
/// for another size, accessor or rule, and for a damaged file; the table then has either all of its
/// rows or none.
Status load_table(SparseTable& table, const std::string& folder, const TableShare& share);
Status load_table(DenseTable& table, const std::string& folder, const TableShare& share);

}  // namespace millrace::ps
