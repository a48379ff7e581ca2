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
#include "io/checkpoint/checksum.h"

/// What a checkpoint holds and where: the content of its `manifest.json`.
namespace millrace::io {

/// Name of the file whose presence makes a folder a checkpoint.
inline constexpr std::string_view kManifestName = "manifest.json";

/// Some bytes of a data file, with a checksum for every block of Manifest::block_bytes.
struct StoredBytes {
  int32_t file = 0;    ///< index in Manifest::files
  uint64_t begin = 0;  ///< first byte, from the start of the file
  uint64_t end = 0;
  std::vector<Checksum> blocks;  ///< the last block may be shorter

  [[nodiscard]] uint64_t size() const { return end - begin; }
};

/// A part of a tensor that is stored in one piece.
struct StoredChunk {
  Box box;
  StoredBytes data;  ///< row-major
  StoredBytes rows;  ///< of selected rows: an int64 row number for each entry of axis 0
};

/// One tensor, whole. The chunks hold each element exactly once.
struct StoredTensor {
  enum class Kind { kDense, kSelectedRows };

  std::string name;
  Kind kind = Kind::kDense;
  DType dtype = DType::kFloat32;
  Dims dims;             ///< of selected rows: those of the value, so dims[0] rows are stored
  Lod lod;               ///< dense tensors that were saved whole only
  int64_t height = 0;    ///< of selected rows
  bool sharded = false;  ///< was saved in parts; else it was whole on each rank that had it
  std::vector<StoredChunk> chunks;

  /// Bytes of all elements and row numbers.
  [[nodiscard]] uint64_t bytes() const;
};

/// A tensor array (LOD_TENSOR_ARRAY). Its elements that were written are tensors of the manifest,
/// whole and under names of io/checkpoint/arrays.h.
struct StoredArray {
  std::string name;
  std::vector<bool> written;  ///< by element

  bool operator==(const StoredArray&) const = default;
};

/// Bytes that only their writer understands, such as what a server must know to go on.
struct StoredRecord {
  std::string name;
  int32_t rank = 0;  ///< that wrote it; a name may occur once for each rank
  StoredBytes data;
};

struct StoredFile {
  std::string name;  ///< in the folder of the manifest
  uint64_t size = 0;
  Checksum checksum;  ///< of the whole file
};

/// A whole checkpoint. A plain value.
struct Manifest {
  int64_t step = 0;
  int32_t world_size = 1;  ///< ranks that wrote it; for people
  uint64_t block_bytes = 1U << 20U;
  std::map<std::string, std::string> user;  ///< notes of the caller, 1 MiB at most
  std::vector<StoredFile> files;            ///< by name
  std::vector<StoredTensor> tensors;        ///< by name
  std::vector<StoredArray> arrays;          ///< by name; no tensor has one of their names
  std::vector<StoredRecord> records;        ///< by name, then rank

  /// Null if there is none of that name.
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;
  [[nodiscard]] const StoredArray* find_array(std::string_view name) const;
  /// True if Checkpoint::load() takes the name: of a tensor or of an array.
  [[nodiscard]] bool has(std::string_view name) const;
  /// Names of all values, sorted: arrays, and tensors that are no element of one.
  [[nodiscard]] std::vector<std::string> value_names() const;
  [[nodiscard]] const StoredRecord* find_record(std::string_view name, int32_t rank) const;
  /// Bytes of all data files.
  [[nodiscard]] uint64_t bytes() const;
};

/// The JSON text of a manifest; its last member is the checksum of everything before it.
/// Same manifest, same bytes.
/// A manifest without arrays has no member for them.
std::string manifest_text(const Manifest& manifest);

/// Reads and checks a manifest: version, checksum, names, ranges within files and not shared, parts
/// that make up each tensor exactly.
/// \param path  for messages
/// Errors: kInvalidData with file, tensor, expected and found; kUnimplemented for another version.
StatusOr<Manifest> parse_manifest(std::string_view text, const std::string& path);

/// Refuses names of tensors, records and data files that a manifest cannot have: empty, above 4
/// KiB, no UTF-8; for files also separators, a leading dot and other endings than ".safetensors".
Status check_entry_name(std::string_view name);
Status check_file_name(std::string_view name);

}  // namespace millrace::io
