#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/log.h"
#include "framework/base/status.h"
#include "framework/types.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/save.h"
#include "jobs/checkpoint/tensor_source.h"
#include "jobs/config/slices_file.h"
#include "ps/table/typed_table.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::jobs {

/// How snapshots of servers are read.
struct SnapshotOptions {
  int threads = 1;
  int64_t max_slices_bytes = kMaxSlicesBytes;  ///< a larger slices.json is refused
  LogSink log = ignore_log;
  int64_t step = -1;  ///< of all servers; -1: the newest that all of them have
};

/// Where the slices of one variable are in the snapshots of a job's servers.
struct JoinedVar {
  struct Slice {
    size_t server = 0;
    const io::StoredTensor* stored = nullptr;
    int64_t offset = 0;  ///< of the whole variable, in elements
  };
  /// kWhole: the value of one server. kSliced: slices in order, without gaps. kTable: rows by row
  /// id. kTyped: a typed table; the rows that the program declares, also those that no server has
  /// yet.
  enum class Kind { kWhole, kSliced, kTable, kTyped };

  Kind kind = Kind::kWhole;
  DType dtype = DType::kFloat32;
  Dims dims;  ///< of the whole variable
  std::vector<Slice> slices;
};

/// The variables of a job with parameter servers, whole and under their original names, read from
/// the snapshots of its servers: `<root>/server-<i>/step-<n>`, where i is the server's index in
/// slices.json.
///
/// Uses intact snapshots of one step: SnapshotOptions::step, or the newest that all servers have.
/// Slices are joined by their offsets. A value that is the same on several
/// servers is read from one of them. Single numbers that slices.json does not list (step counters,
/// learning rates) are included; gradients and temporaries of the updates are not. Typed tables are
/// the embeddings that they replace: what lookups would get, without statistics and optimizer
/// state.
class ServerSnapshots {
 public:
  /// \param slices  the slices.json of the job that wrote the snapshots
  /// Errors: kNotFound for a server without a snapshot, or without one of the step; kInvalidData if
  /// there is no common step (the message lists the steps), for a variable that slices.json lists
  /// and no snapshot has, for slices that do not add up to their variable, and for
  /// a typed table that the tables.json beside slices.json does not have.
  static StatusOr<ServerSnapshots> open(const std::string& root, const std::string& slices,
                                        const SnapshotOptions& options);

  [[nodiscard]] const std::map<std::string, JoinedVar>& vars() const { return vars_; }
  [[nodiscard]] const std::vector<io::Checkpoint>& servers() const { return servers_; }
  /// The typed tables of the job, by name of the embedding.
  [[nodiscard]] const std::map<std::string, ps::TypedTable>& typed() const { return typed_; }
  [[nodiscard]] int64_t step() const { return step_; }
  /// Steps that other servers had applied before the job of these servers began.
  [[nodiscard]] int64_t steps_before() const { return steps_before_; }
  [[nodiscard]] uint64_t bytes() const;
  /// A variable as one value; a table with its rows in ascending order of row id, as a dense tensor
  /// if it has all rows. Errors: kNotFound; those of check_slices() and of reading.
  [[nodiscard]] StatusOr<Value> load(const std::string& name) const;

 private:
  std::vector<io::Checkpoint> servers_;
  std::map<std::string, JoinedVar> vars_;
  std::map<std::string, ps::TypedTable> typed_;
  int64_t step_ = 0;
  int64_t steps_before_ = 0;
};

/// Checks that the slices of a sliced variable cover it exactly. Errors: those of
/// check_slices_cover(); kUnimplemented for slices of rows.
Status check_slices(const std::string& name, const JoinedVar& var);

/// ServerSnapshots as a source of values. Errors: as for open().
StatusOr<std::unique_ptr<TensorSource>> open_servers(const std::string& root,
                                                     const std::string& slices,
                                                     const SnapshotOptions& options);

/// The number of steps that a server had applied when it took a snapshot: the step by which
/// snapshots are selected, while their folders are counted. Errors: those of reading.
StatusOr<int64_t> applied_steps(const io::Checkpoint& snapshot);

/// Opens one intact snapshot of each server in `<root>/server-<i>`, all of one step: that of the
/// options, or the newest that all servers have. \param chosen  receives them \returns the step
/// Errors: as for ServerSnapshots::open().
StatusOr<int64_t> open_snapshots(const std::string& root, size_t servers,
                                 const SnapshotOptions& options,
                                 std::vector<io::Checkpoint>& chosen);

/// The folders of snapshots `<root>/server-0`, `server-1`, ...; empty if `root` has none.
std::vector<std::string> server_folders(const std::string& root);

/// Reads slices.json of a job. Errors: those of read_slices(); kInvalidData for a job without
/// servers.
StatusOr<transpiler::SlicesFile> read_slices_of_servers(const std::string& path,
                                                        const SnapshotOptions& options);

/// Writes the values of snapshots for the servers of another job, to
/// `<output>/server-<i>/step-<n>`. Only values are written, so the new job may have any number of
/// trainers, and the facts about its distribution, by which servers of another job refuse them.
/// Streams the data and reads no more than needed.
///
/// \param tables     typed tables of the new job
/// \param max_bytes  of tensor data held at a time; at least one row is held
/// \param options    step and calls are ignored
/// Errors: kNotFound for a variable that the snapshots do not have; kInvalidData for one of a
/// different shape or element type; kUnimplemented for one that is a table in one of the jobs only;
/// those of TableReshard::open(), of reading and of writing.
Status reshard_snapshots(const ServerSnapshots& from, const transpiler::SlicesFile& to,
                         const std::vector<ps::TypedTable>& tables, const std::string& output,
                         uint64_t max_bytes, io::CheckpointSaveOptions options);

}  // namespace millrace::jobs
