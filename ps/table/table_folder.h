#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/file.h"
#include "framework/base/status.h"
#include "ps/table/dense_table.h"
#include "ps/table/sparse_table.h"

namespace millrace::ps {

/// Where a server stands among those that share a table.
struct TableShare {
  int64_t server = 0;
  int64_t servers = 1;
  int64_t shard_num = 1;  ///< of sparse tables: decides who has a key (ps/table/routing.h)
};

/// The tables of a job as files: every server writes its part (ps/table/table_files.h), and beside
/// it, last, `<id>/layout` with the number of servers, so that another number of servers knows
/// which files make up the table.
///
/// \param folder  of all tables; each has a folder of its number in it
/// \param mode    of the original's save (Accessor::is_saved()); 0: everything
/// Errors: kUsage for a part that is there and may not be replaced; those of writing.
Status save_table(SparseTable& table, const std::string& folder, const TableShare& share, int mode,
                  Replace replace);
Status save_table(DenseTable& table, const std::string& folder, const TableShare& share,
                  Replace replace);

/// True if the folder has files of some table.
bool has_tables(const std::string& folder);

/// The files that load_table() reads, with the same errors where they cannot be known.
StatusOr<std::vector<std::string>> table_parts(const std::string& folder, int table_id,
                                               const TableShare& share);

/// Loads what belongs to this server. As many servers as have saved read their own parts alone;
/// another number reads all, which must lie there. What the table had goes.
/// Errors: kNotFound with the file that is missing; kInvalidData for another size, accessor or
/// rule, and for a damaged file; the table then has all of its rows or none.
Status load_table(SparseTable& table, const std::string& folder, const TableShare& share);
Status load_table(DenseTable& table, const std::string& folder, const TableShare& share);

}  // namespace millrace::ps
