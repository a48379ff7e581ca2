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

/// Files of tables. The binary form is exact and has a checksum. The text form is that of the
/// original (spec/distributed_io.md section 6), with enough digits to reproduce every float.
///
/// Files appear complete or not at all. Equal rows produce equal bytes. Rows are written partition
/// by partition, so a concurrent push may be in the file for some of its rows and not for others.

/// Path of a server's file of a table: "DIR/003/part-001.rows". The text form of a sparse table has
/// a file for each of its shards ("DIR/003/part-001-00012"), that of a dense table is
/// "DIR/003/part-001".
std::string table_file(const std::string& folder, int table_id, int64_t server);
std::string table_text_file(const std::string& folder, int table_id, int64_t server,
                            int64_t shard = -1);

/// Writes the rows that a mode includes (Accessor::is_saved()), and updates their statistics
/// (Accessor::after_save()).
/// \returns rows written
/// Errors: kIo, kNotFound, with the path.
StatusOr<int64_t> save_rows(SparseTable& table, const std::string& path, int mode);
/// Reads rows into a table.
/// \param owns  true for keys of this server, since the number of servers may have changed; empty:
///              all keys
/// \returns rows read
/// Errors: kNotFound, kIo; kInvalidData with the path for a file that is malformed, belongs to
/// another accessor or has a wrong checksum. The table then has none of the file's rows.
StatusOr<int64_t> load_rows(SparseTable& table, const std::string& path,
                            const std::function<bool(uint64_t)>& owns = {});

/// Writes one text file per shard, with a line "key value value ..." for each row.
/// \param shards  number of shards of this server; the shard of a key is (key % shard_num) % shards
/// Errors: as save_rows().
StatusOr<int64_t> save_rows_as_text(SparseTable& table, const std::string& folder, int64_t server,
                                    int64_t shard_num, int64_t shards, int mode);
/// Reads a text file, also one that gzip or zstd compressed. Errors: as load_rows(), with the line;
/// kUnimplemented for zstd if this build does not support it.
StatusOr<int64_t> load_rows_from_text(SparseTable& table, const std::string& path,
                                      const std::function<bool(uint64_t)>& owns = {});

/// The same for text in memory. \param name  used as file name in messages
StatusOr<int64_t> parse_rows(SparseTable& table, std::string_view text, const std::string& name,
                             const std::function<bool(uint64_t)>& owns = {});

/// Saves or loads all columns of a dense table.
Status save_dense(DenseTable& table, const std::string& path);
Status load_dense(DenseTable& table, const std::string& path);
/// Loads a server's range of a table that another number of servers saved.
/// \param paths  the files of all servers that saved, in order
/// Errors: as load_dense(); kInvalidData if the files do not make up the table.
Status load_dense_parts(DenseTable& table, const std::vector<std::string>& paths, int64_t server,
                        int64_t servers);

}  // namespace millrace::ps
