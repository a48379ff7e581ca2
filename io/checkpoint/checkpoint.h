#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLFunctionalExtras.h>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "io/checkpoint/block_reads.h"
#include "io/checkpoint/box.h"
#include "io/checkpoint/file_calls.h"
#include "io/checkpoint/manifest.h"

/// Reading checkpoints, by any number of ranks, in any layout, whoever wrote them.
namespace millrace::io {

/// How a checkpoint is read.
struct CheckpointLoadOptions {
  /// That read at the same time; 0: as many as the machine runs, 4 at most. One thread cannot keep
  /// up with bare reads, because it also compares checksums.
  int threads = 0;
  std::shared_ptr<FileCalls> calls = nullptr;  ///< null: those of the system
  /// Folders on other disks with what ranks that save on disks of their own have written there: of
  /// the same checkpoint, or folders of checkpoints with one of its name.
  std::vector<std::string> beside = {};
};

/// A checkpoint that is complete: its manifest has been read and checked, its data files are there
/// and as long as the manifest says.
///
/// Every byte that is handed out has been compared with its checksum. Memory besides the results:
/// the manifest, and one block (1 MiB by default) for each thread. Thread-safety: concurrent
/// readers.
class Checkpoint {
 public:
  /// \param folder  with manifest.json, or with files of a checkpoint whose manifest lies beside
  /// Errors: kNotFound if there is no manifest or a file is missing; kInvalidData for a manifest
  /// that is corrupt, a file of another size, and symbolic links; kUnimplemented for a manifest of
  /// another version; kIo.
  static StatusOr<Checkpoint> open(const std::string& folder,
                                   const CheckpointLoadOptions& options = {});

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }

  /// A whole tensor, table or array, LoD included.
  /// Errors: kNotFound with the name; kInvalidData with file, tensor, expected and found for bytes
  /// that differ from what was saved; kResource, kIo.
  [[nodiscard]] StatusOr<Value> load(std::string_view name) const;

  /// A part of a dense tensor, or of the values of a table, whose axis 0 is then the order in which
  /// rows are stored. Reads no block of the files that has nothing of it.
  /// Errors: also kInvalidArgument for a box outside the tensor.
  [[nodiscard]] StatusOr<Tensor> load_box(std::string_view name, const Box& box) const;

  /// The same into memory of the caller, row-major. \param to  exactly as long as the box
  Status read_box(std::string_view name, const Box& box, std::span<std::byte> to) const;

  /// A part and the memory that it goes to.
  struct BoxRead {
    std::string_view name;
    Box box;
    std::span<std::byte> to;  ///< exactly as long as the box
  };
  /// Several parts: threads share all of them, whatever their sizes. Errors: as read_box(), of the
  /// first that fails; memory of the others may then be written, too.
  Status read_boxes(llvm::ArrayRef<BoxRead> reads) const;

  /// Reads and compares all blocks of which something is wanted, and hands them out; threads share
  /// them. What the other functions are made of. Errors: as read_boxes().
  [[nodiscard]] Status read(const std::vector<WantedBytes>& wanted) const;

  /// The row numbers of a table in the order in which they are stored.
  [[nodiscard]] StatusOr<std::vector<int64_t>> load_row_numbers(std::string_view name) const;

  /// The rows of a table for which `wanted` says so, in the order in which they are stored. An
  /// empty `wanted` takes all. Errors: also kInvalidArgument for a dense tensor.
  [[nodiscard]] StatusOr<SelectedRows> load_rows(std::string_view name,
                                                 const std::function<bool(int64_t)>& wanted) const;

  /// Bytes that a rank had saved under a name.
  [[nodiscard]] StatusOr<std::string> load_record(std::string_view name, int32_t rank = 0) const;

  /// Reads every file and compares it with its checksums, down to the blocks of the tensors.
  /// \param progress  called with the bytes read since, from any thread; may be null
  /// \returns everything that is wrong; empty if nothing is
  [[nodiscard]] std::vector<Status> verify(
      const std::function<void(uint64_t)>& progress = {}) const;

 private:
  Checkpoint() = default;

  friend class SpreadCheckpoint;
  /// A checkpoint of which nothing has been read.
  static Checkpoint nothing_of(const std::string& folder, const CheckpointLoadOptions& options);
  static StatusOr<std::string> read_manifest(FileCalls& calls, const std::string& folder);
  Status take_newest_manifest(const std::vector<std::string>& folders);

  [[nodiscard]] StatusOr<const StoredTensor*> find(std::string_view name) const;
  [[nodiscard]] StatusOr<Value> load_array(const StoredArray& array) const;
  Status read_block(const StoredBytes& stored, uint64_t block, const std::string& owner,
                    std::span<std::byte> to) const;
  [[nodiscard]] Status read_to_sink(const BlockRead& block) const;
  [[nodiscard]] Status read_to_sinks(const std::vector<BlockRead>& blocks) const;
  [[nodiscard]] Status verify_file(size_t index,
                                   const std::function<void(uint64_t)>& progress) const;
  [[nodiscard]] std::vector<Status> verify_files(
      llvm::function_ref<bool(size_t)> which, const std::function<void(uint64_t)>& progress) const;

  std::string folder_;
  Manifest manifest_;
  CheckpointLoadOptions options_;
  std::vector<std::unique_ptr<ReadableFile>> files_;  ///< null: on the disk of another rank
};

/// A value that load_state_dict() fills. An array comes whole; `dtype` is that of its elements.
struct LoadTarget {
  std::string name;
  Value* value = nullptr;
  /// Absent: the whole tensor. Else this part of a dense one.
  std::optional<Box> box;
  /// Of selected rows: the rows to take; empty: all.
  std::function<bool(int64_t)> rows;
  /// Absent: any. Another one than the stored one is an error unless LoadStateOptions::cast.
  std::optional<DType> dtype;
  std::optional<Dims> dims;  ///< of the whole tensor; -1 fits any extent; not looked at for arrays
};

/// What load_state_dict() accepts.
struct LoadStateOptions {
  bool allow_missing = false;    ///< targets that the checkpoint does not have keep their values
  bool allow_unexpected = true;  ///< the checkpoint may have tensors that are no target
  bool cast = false;             ///< elements become those of LoadTarget::dtype
};

/// How a load gets its bytes. Called three times, first for the numbers of rows, then for values,
/// and once without any when everything has been checked; errors end the load.
/// \param mine  what has gone wrong so far; ranks that load together tell each other
using ReadWanted = llvm::function_ref<Status(Status mine, const std::vector<WantedBytes>& wanted)>;

/// What load_state_dict() does, whoever reads. \param folder  for messages
Status load_state_with(const Manifest& manifest, const std::string& folder,
                       const std::vector<LoadTarget>& targets, const LoadStateOptions& options,
                       ReadWanted read);

/// Fills all targets or none: the values are replaced when everything has been read and verified.
/// Errors: those of Checkpoint; kInvalidData for another dtype or shape than the target's, and for
/// tensors that are no target where that is not allowed.
/// Source: seed 003, spec/checkpoint.md sections 3, 6 and 7.
Status load_state_dict(const Checkpoint& checkpoint, const std::vector<LoadTarget>& targets,
                       const LoadStateOptions& options = {});

}  // namespace millrace::io
