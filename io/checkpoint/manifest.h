#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/lod.h"
#include "framework/types.h"
#include "framework/var.h"
#include "io/checkpoint/box.h"
#include "io/checksum.h"

/// The content of a checkpoint's `manifest.json`: what the checkpoint holds and where.
namespace millrace::io {

/// Name of the file that makes a folder a checkpoint.
inline constexpr std::string_view kManifestName = "manifest.json";

/// A range of bytes of a data file, with a checksum for every block of Manifest::block_bytes.
struct StoredBytes {
  int32_t file = 0;    ///< index in Manifest::files
  uint64_t begin = 0;  ///< offset of the first byte in the file
  uint64_t end = 0;
  std::vector<Checksum> blocks;  ///< the last block may be shorter

  [[nodiscard]] uint64_t size() const { return end - begin; }
};

/// A part of a tensor that is stored contiguously.
struct StoredChunk {
  Box box;
  StoredBytes data;  ///< row-major
  StoredBytes rows;  ///< selected rows only: an int64 row number for each entry of axis 0
};

/// One whole tensor. Its chunks cover each element exactly once.
struct StoredTensor {
  enum class Kind { kDense, kSelectedRows };

  std::string name;
  Kind kind = Kind::kDense;
  DType dtype = DType::kFloat32;
  Dims dims;             ///< selected rows: those of the value; dims[0] rows are stored
  Lod lod;               ///< only for dense tensors that were saved whole
  int64_t height = 0;    ///< selected rows only
  bool sharded = false;  ///< was saved in parts; else whole on each rank that had it
  std::vector<StoredChunk> chunks;

  /// Total bytes of elements and row numbers.
  [[nodiscard]] uint64_t bytes() const;
};

/// A tensor array (LOD_TENSOR_ARRAY). Its elements that were written are whole tensors of the
/// manifest, named as in io/checkpoint/arrays.h.
struct StoredArray {
  std::string name;
  std::vector<bool> written;  ///< for each element, whether it was written

  bool operator==(const StoredArray&) const = default;
};

/// Bytes that only their writer interprets, such as the state that a server needs to resume.
struct StoredRecord {
  std::string name;
  int32_t rank = 0;  ///< the rank that wrote it; a name may occur once per rank
  StoredBytes data;
};

struct StoredFile {
  std::string name;  ///< file name in the folder of the manifest
  uint64_t size = 0;
  Checksum checksum;  ///< of the whole file
};

/// A whole checkpoint. A plain value.
struct Manifest {
  int64_t step = 0;
  int32_t world_size = 1;  ///< number of ranks that wrote it; informative
  uint64_t block_bytes = 1U << 20U;
  std::map<std::string, std::string> user;  ///< notes from the caller, at most 1 MiB
  std::vector<StoredFile> files;            ///< sorted by name
  std::vector<StoredTensor> tensors;        ///< sorted by name
  std::vector<StoredArray> arrays;          ///< sorted by name; names differ from those of tensors
  std::vector<StoredRecord> records;        ///< sorted by name, then rank

  /// The tensor of that name; null if there is none.
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;
  [[nodiscard]] const StoredArray* find_array(std::string_view name) const;
  /// True if Checkpoint::load() accepts the name: a tensor or an array.
  [[nodiscard]] bool has(std::string_view name) const;
  /// Sorted names of all values: arrays, and tensors that are not elements of an array.
  [[nodiscard]] std::vector<std::string> value_names() const;
  [[nodiscard]] const StoredRecord* find_record(std::string_view name, int32_t rank) const;
  /// Total bytes of all data files.
  [[nodiscard]] uint64_t bytes() const;
};

/// The JSON text of a manifest. Its last member is the checksum of everything before it. Equal
/// manifests have equal texts. A manifest without arrays has no member for arrays.
std::string manifest_text(const Manifest& manifest);

/// Reads and checks a manifest: version, checksum, names, byte ranges within their files that do
/// not overlap, and parts that cover each tensor exactly.
/// \param path  for messages
/// Errors: kInvalidData with file, tensor, expected and found; kUnimplemented for another version.
StatusOr<Manifest> parse_manifest(std::string_view text, const std::string& path);

/// Rejects names of tensors, records and data files that a manifest must not have: empty, above 4
/// KiB, not UTF-8; for files also separators, a leading dot and endings other than ".safetensors".
Status check_entry_name(std::string_view name);
Status check_file_name(std::string_view name);

}  // namespace millrace::io
