#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "ps/table/dense_table.h"
#include "ps/table/sparse_table.h"

namespace millrace::ps {

/// Files of tables. The binary form is exact and carries a checksum; the text form is that of the
/// original (spec/distributed_io.md section 6), with digits that give every float back.
///
/// Files appear complete or not at all. Equal rows give equal bytes. Rows are written part by part,
/// so that pushes beside a save are in it or not, row by row.

/// Where a server's file of a table lies: "DIR/003/part-001.rows"; text of a sparse table has a
/// file for each of its shards ("DIR/003/part-001-00012"), of a dense one "DIR/003/part-001".
std::string table_file(const std::string& folder, int table_id, int64_t server);
std::string table_text_file(const std::string& folder, int table_id, int64_t server,
                            int64_t shard = -1);

/// Writes the rows that a mode takes (Accessor::is_saved()); their statistics change as it says.
/// \returns rows written. Errors: kIo, kNotFound, with the path.
StatusOr<int64_t> save_rows(SparseTable& table, const std::string& path, int mode);
/// Reads rows into a table.
/// \param owns  keys that this server has, since the number of servers may have changed; empty: all
/// \returns rows taken. Errors: kNotFound, kIo; kInvalidData with the path for a file that is not
/// one, is of another accessor or does not have its checksum. The table then has none of its rows.
StatusOr<int64_t> load_rows(SparseTable& table, const std::string& path,
                            const std::function<bool(uint64_t)>& owns = {});

/// Writes one text file a shard: "key value value ..." a line. \param shards  of this server; the
/// shard of a key is (key % shard_num) % shards. Errors: as save_rows().
StatusOr<int64_t> save_rows_as_text(SparseTable& table, const std::string& folder, int64_t server,
                                    int64_t shard_num, int64_t shards, int mode);
/// Reads a text file. Errors: as load_rows(), with the line; kUnimplemented for compressed ones.
StatusOr<int64_t> load_rows_from_text(SparseTable& table, const std::string& path,
                                      const std::function<bool(uint64_t)>& owns = {});

/// The same for text in memory. \param name  stands for the file in messages
StatusOr<int64_t> parse_rows(SparseTable& table, std::string_view text, const std::string& name,
                             const std::function<bool(uint64_t)>& owns = {});

/// All columns of a dense table.
Status save_dense(DenseTable& table, const std::string& path);
Status load_dense(DenseTable& table, const std::string& path);
/// What a server of another number of servers has of them.
/// \param paths  the files of all servers that have saved, in order
/// Errors: as load_dense(); kInvalidData where they do not make up the table.
Status load_dense_parts(DenseTable& table, const std::vector<std::string>& paths, int64_t server,
                        int64_t servers);

}  // namespace millrace::ps
