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

/// Reading checkpoints with any number of ranks and in any layout, regardless of which ranks wrote
/// them.
namespace millrace::io {

/// Options for reading a checkpoint.
struct CheckpointLoadOptions {
  /// Number of threads that read concurrently; 0: the number of hardware threads, at most 4. One
  /// thread cannot reach the speed of the disk, because it also computes checksums.
  int threads = 0;
  std::shared_ptr<FileCalls> calls = nullptr;  ///< null: the system's
  /// Folders on other disks, for checkpoints whose ranks saved to separate disks. Each is either a
  /// folder of the same checkpoint, or a folder that contains a checkpoint folder of the same name.
  std::vector<std::string> beside = {};
};

/// A complete checkpoint: its manifest has been read and checked, and its data files exist and have
/// the sizes that the manifest states.
///
/// Every byte that is returned has been compared with its checksum. Memory besides the results: the
/// manifest, and one block (1 MiB by default) per thread. Thread-safety: concurrent readers.
class Checkpoint {
 public:
  /// \param folder  contains manifest.json, or files of a checkpoint whose manifest is in one of
  ///                the folders in options.beside
  /// Errors: kNotFound if there is no manifest or a file is missing; kInvalidData for a manifest
  /// that is corrupt, a file of another size, and symbolic links; kUnimplemented for a manifest of
  /// another version; kIo.
  static StatusOr<Checkpoint> open(const std::string& folder,
                                   const CheckpointLoadOptions& options = {});

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }

  /// Reads a whole tensor, table or array, including LoD.
  /// Errors: kNotFound with the name; kInvalidData with file, tensor, expected and found for bytes
  /// that differ from what was saved; kResource, kIo.
  [[nodiscard]] StatusOr<Value> load(std::string_view name) const;

  /// Reads a box of a dense tensor, or of the values of a table; axis 0 of a table is the order in
  /// which its rows are stored. Reads only the file blocks that contain elements of the box.
  /// Errors: also kInvalidArgument for a box outside the tensor.
  [[nodiscard]] StatusOr<Tensor> load_box(std::string_view name, const Box& box) const;

  /// As load_box(), into memory of the caller, row-major. \param to  exactly the size of the box
  Status read_box(std::string_view name, const Box& box, std::span<std::byte> to) const;

  /// A box and its destination.
  struct BoxRead {
    std::string_view name;
    Box box;
    std::span<std::byte> to;  ///< exactly the size of the box
  };
  /// Reads several boxes. The threads share all blocks, whatever the sizes of the boxes. Errors: as
  /// read_box(), for the first box that fails; memory of the other boxes may have been written.
  Status read_boxes(llvm::ArrayRef<BoxRead> reads) const;

  /// Reads all blocks of which some bytes are wanted, compares their checksums and delivers them;
  /// the threads share them. All other load functions use this one. Errors: as read_boxes().
  [[nodiscard]] Status read(const std::vector<WantedBytes>& wanted) const;

  /// Reads the row numbers of a table in the order in which they are stored.
  [[nodiscard]] StatusOr<std::vector<int64_t>> load_row_numbers(std::string_view name) const;

  /// Reads the rows of a table for which `wanted` returns true, in the order in which they are
  /// stored. An empty `wanted` selects all rows. Errors: also kInvalidArgument for a dense tensor.
  [[nodiscard]] StatusOr<SelectedRows> load_rows(std::string_view name,
                                                 const std::function<bool(int64_t)>& wanted) const;

  /// Reads the bytes that a rank saved under a name.
  [[nodiscard]] StatusOr<std::string> load_record(std::string_view name, int32_t rank = 0) const;

  /// Reads every file and compares it with its checksums, down to the blocks of the tensors.
  /// \param progress  called with the number of bytes read since the last call, from any thread;
  ///                  may be null
  /// \returns all errors; empty if there are none
  [[nodiscard]] std::vector<Status> verify(
      const std::function<void(uint64_t)>& progress = {}) const;

 private:
  Checkpoint() = default;

  friend class SpreadCheckpoint;
  /// A checkpoint object before anything has been read.
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

/// A value that load_state_dict() fills. An array is always loaded whole; `dtype` is the type of
/// its elements.
struct LoadTarget {
  std::string name;
  Value* value = nullptr;
  /// Absent: the whole tensor. Otherwise only this box of a dense tensor.
  std::optional<Box> box;
  /// For selected rows: which rows to load; empty: all.
  std::function<bool(int64_t)> rows;
  /// Absent: any type. A type that differs from the stored one is an error unless
  /// LoadStateOptions::cast.
  std::optional<DType> dtype;
  std::optional<Dims> dims;  ///< of the whole tensor; -1 matches any extent; ignored for arrays
};

/// Which differences load_state_dict() accepts.
struct LoadStateOptions {
  bool allow_missing = false;    ///< targets missing in the checkpoint keep their values
  bool allow_unexpected = true;  ///< the checkpoint may have tensors without a target
  bool cast = false;             ///< convert elements to LoadTarget::dtype
};

/// Reads the requested bytes. Called three times: for row numbers, for values, and once with an
/// empty request after everything has been checked. An error ends the load.
/// \param mine  error of this rank so far; ranks that load together exchange it
using ReadWanted = llvm::function_ref<Status(Status mine, const std::vector<WantedBytes>& wanted)>;

/// Implementation of load_state_dict() with any way of reading. \param folder  for messages
Status load_state_with(const Manifest& manifest, const std::string& folder,
                       const std::vector<LoadTarget>& targets, const LoadStateOptions& options,
                       ReadWanted read);

/// Fills all targets or none: the values are replaced after everything has been read and verified.
/// Errors: those of Checkpoint; kInvalidData for a dtype or shape that differs from the target's,
/// and for tensors without a target if that is not allowed.
/// Source: spec/checkpoint.md sections 3, 6 and 7.
Status load_state_dict(const Checkpoint& checkpoint, const std::vector<LoadTarget>& targets,
                       const LoadStateOptions& options = {});

}  // namespace millrace::io
