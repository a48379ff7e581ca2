#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/save_streams.h"
#include "jobs/checkpoint/rows_stream.h"
#include "jobs/checkpoint/servers.h"
#include "ps/table/typed_table.h"

namespace millrace::jobs {

/// Reshards the typed tables in snapshots of servers (ps/server/snapshots.h) for the servers of
/// another job: rows with all their state, and keys that wait for admission. Tables of the two jobs
/// belong together if they replace the same embedding; their numbers may differ. Holds the keys of
/// all rows in memory, 56 bytes each while they are sorted. Rows are streamed.
class TableReshard {
 public:
  /// \param from    snapshots of the old servers; must outlive the object and its streams
  /// \param tables  of the new job
  /// Errors: kNotFound for an embedding that the snapshots do not have, kUnimplemented for one that
  /// they have as a var of another kind; kInvalidData for a table that the new job does not have,
  /// for rows of another accessor, rule or width, for fewer rows than the snapshots declare, and
  /// for one key on two servers; those of reading.
  static StatusOr<TableReshard> open(const ServerSnapshots& from,
                                     const std::vector<ps::TypedTable>& tables, uint64_t max_bytes);
  /// The same for snapshots that have nothing but tables. \param old  their tables
  /// Errors: kNotFound for an embedding that is not among them; as above.
  static StatusOr<TableReshard> open(const std::vector<io::Checkpoint>& servers,
                                     const std::vector<ps::TypedTable>& old,
                                     const std::vector<ps::TypedTable>& tables, uint64_t max_bytes);

  /// The tensors of a new server. Rows are in ascending order of their keys. If the number of
  /// servers changed, random draws for admission continue after those of all old servers.
  [[nodiscard]] std::vector<io::StreamedTensor> tensors_of(size_t server) const;

 private:
  struct Table {
    JoinedVar rows;
    /// Keys of each new server, and their places among the rows of the old servers.
    std::vector<std::vector<ps::RowPlace>> admitted;
    /// Keys that wait for admission, likewise, and their places in `counts`.
    std::vector<std::vector<ps::RowPlace>> waiting;
    std::vector<std::vector<float>> counts;   ///< indexed by old server
    std::vector<std::vector<int64_t>> draws;  ///< likewise
  };

  TableReshard(const std::vector<io::Checkpoint>& from, uint64_t max_bytes)
      : from_(&from), max_bytes_(max_bytes) {}
  /// \param id  of the table in the snapshots
  Status read(int id, const ps::TypedTable& table, Table& to) const;

  const std::vector<io::Checkpoint>* from_;
  uint64_t max_bytes_;
  std::map<int, Table> tables_;  ///< by number in the new job
};

/// True for the name of a tensor that a snapshot uses for part of a typed table.
bool is_table_part(const std::string& name);

}  // namespace millrace::jobs
