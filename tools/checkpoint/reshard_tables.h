#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/save_streams.h"
#include "ps/table/typed_table.h"
#include "tools/checkpoint/rows_stream.h"

namespace millrace::tools {

/// The typed tables in snapshots of servers (ps/server/snapshots.h), cut anew for those of another
/// job: rows with all that they have, and keys that wait for admission. Holds the keys of all rows
/// in memory, 56 bytes each while they are sorted; rows are streamed.
class TableReshard {
 public:
  /// \param from    the old servers; must outlive the object and its streams
  /// \param tables  of the new job
  /// Errors: kInvalidData for a table that the new job does not have, or one key on two servers;
  /// those of reading.
  static StatusOr<TableReshard> open(const std::vector<io::Checkpoint>& from,
                                     const std::vector<ps::TypedTable>& tables, uint64_t max_bytes);

  /// What a new server gets. Rows are in order of their keys. Random numbers of admission begin
  /// anew where the number of servers is another one.
  [[nodiscard]] std::vector<io::StreamedTensor> tensors_of(size_t server) const;

 private:
  /// Rows, or keys that wait, of one new server.
  struct Part {
    std::vector<int64_t> keys;
    std::vector<RowsStream::Place> places;
  };
  struct Table {
    JoinedVar rows;
    std::vector<Part> admitted;               ///< by new server
    std::vector<Part> waiting;                ///< likewise; place.index is in `counts` of the piece
    std::vector<std::vector<float>> counts;   ///< by old server
    std::vector<std::vector<int64_t>> draws;  ///< likewise
  };

  TableReshard(const std::vector<io::Checkpoint>& from, uint64_t max_bytes)
      : from_(&from), max_bytes_(max_bytes) {}
  Status read(const ps::TypedTable& table, Table& to) const;

  const std::vector<io::Checkpoint>* from_;
  uint64_t max_bytes_;
  std::map<int, Table> tables_;
};

/// True for the name of a part of a typed table in a snapshot.
bool is_table_part(const std::string& name);

}  // namespace millrace::tools
