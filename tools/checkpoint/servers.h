#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/types.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/save.h"
#include "ps/table/typed_table.h"
#include "tools/checkpoint/source.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::tools {

/// Where the parts of one variable stand in the snapshots of a job's servers.
struct JoinedVar {
  struct Piece {
    size_t server = 0;
    const io::StoredTensor* stored = nullptr;
    int64_t offset = 0;  ///< of the whole variable, in elements
  };
  /// kWhole: one server's value. kSliced: pieces in order, without gaps. kTable: rows by number.
  enum class Kind { kWhole, kSliced, kTable };

  Kind kind = Kind::kWhole;
  DType dtype = DType::kFloat32;
  Dims dims;  ///< of the whole variable
  std::vector<Piece> pieces;
};

/// The variables of a job with parameter servers, whole and under their original names, in the
/// snapshots of its servers: `<root>/server-<i>/step-<n>`, i counted as in slices.json.
///
/// Of each server the newest good snapshot is taken; if they are of different steps, the newest
/// step that all of them have. Slices are joined by their offsets; what several servers hold alike
/// is taken from one. Single numbers that slices.json does not list (steps, learning rates) come
/// along; gradients and what updates scribble on do not.
class ServerSnapshots {
 public:
  /// \param slices  the slices.json of the job that wrote the snapshots
  /// Errors: kNotFound for a server without snapshot; kInvalidData if there is no common step, with
  /// the steps, and for slices that do not make up their variable.
  static StatusOr<ServerSnapshots> open(const Tool& tool, const std::string& root,
                                        const std::string& slices);

  [[nodiscard]] const std::map<std::string, JoinedVar>& vars() const { return vars_; }
  [[nodiscard]] const std::vector<io::Checkpoint>& servers() const { return servers_; }
  [[nodiscard]] int64_t step() const { return step_; }
  [[nodiscard]] uint64_t bytes() const;
  /// A variable as one value; a table with its rows in order of their numbers, dense if it has all.
  /// Errors: those of reading.
  [[nodiscard]] StatusOr<Value> load(const JoinedVar& var) const;

 private:
  std::vector<io::Checkpoint> servers_;
  std::map<std::string, JoinedVar> vars_;
  int64_t step_ = 0;
};

/// Checks that the pieces of a cut variable make it up exactly. Errors: kInvalidData.
Status check_pieces(const JoinedVar& var);

/// The same as a source of values. Errors: as above.
StatusOr<std::unique_ptr<TensorSource>> open_servers(const Tool& tool, const std::string& root,
                                                     const std::string& slices);

/// `<root>/server-0`, `server-1`, ...: the folders of snapshots; none for another folder.
std::vector<std::string> server_folders(const std::string& root);

/// slices.json of a job. Errors: those of reading; kInvalidData for a job without servers.
StatusOr<transpiler::SlicesFile> read_slices(const Tool& tool, const std::string& path);

/// Writes what snapshots hold for the servers of another job, `<output>/server-<i>/step-<n>`:
/// values only, with which a job of any number of trainers begins. Streams; reads no more than
/// needed.
///
/// \param tables     typed tables of the new job
/// \param max_bytes  of tensor data held at a time; one row is the least
/// \param options    step and calls are not looked at
/// Errors: kNotFound for a variable that the snapshots do not have; kInvalidData for one of another
/// shape, and for a typed table that the new job does not have; those of reading and writing.
Status reshard_snapshots(const ServerSnapshots& from, const transpiler::SlicesFile& to,
                         const std::vector<ps::TypedTable>& tables, const std::string& output,
                         uint64_t max_bytes, io::CheckpointSaveOptions options);

/// checkpoint reshard with --slices and --to-slices: snapshots for the servers of another job.
StatusOr<int> reshard_servers(Tool& tool, const CheckpointFlags& flags);

}  // namespace millrace::tools
