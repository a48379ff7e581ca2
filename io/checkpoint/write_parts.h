#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/plan.h"
#include "io/checkpoint/save.h"
#include "io/json.h"

/// Writes the data files of one rank, and combines the results of all ranks into a manifest.
namespace millrace::io {

/// Temporary name of the manifest while it is being written.
inline constexpr std::string_view kTemporaryManifest = "manifest.json.tmp";
/// The same for one of several ranks that write a manifest each, possibly into a shared folder.
std::string temporary_manifest_name(int32_t rank);
/// True for both kinds of names.
bool is_temporary_manifest(std::string_view name);

/// "data-<rank>-<part>.safetensors". Later generations in the same folder, which replace earlier
/// ones, have their number before the ending.
std::string data_file_name(int32_t rank, size_t part, int64_t generation);
/// The generation of a data file; nullopt for any other name.
std::optional<int64_t> generation_of(std::string_view name);
/// How new a manifest is among the successive manifests of one folder; from 1.
int64_t age_of(const Manifest& manifest);

/// The result of writing on one rank.
struct WrittenParts {
  struct Chunk {
    size_t chunk = 0;  ///< index in SavePlan::chunks
    StoredBytes data;
    StoredBytes rows;
    Lod lod;
  };
  std::vector<StoredFile> files;
  std::vector<Chunk> chunks;          ///< their StoredBytes::file is an index in `files`
  std::vector<StoredRecord> records;  ///< as for chunks
};

/// Writes the chunks and records that a rank owns.
class WriteParts {
 public:
  WriteParts(FileCalls& calls, std::string folder, const CheckpointSaveOptions& options)
      : calls_(calls), folder_(std::move(folder)), options_(options) {}

  StatusOr<WrittenParts> write(const LocalState& state, const SavePlan& plan, int32_t rank,
                               int64_t generation);
  /// Names of the files that may exist, even after an error.
  [[nodiscard]] const std::vector<std::string>& created() const { return created_; }

 private:
  FileCalls& calls_;
  std::string folder_;
  const CheckpointSaveOptions& options_;
  std::vector<std::string> created_;
};

/// Text form, for Gather.
std::string parts_text(const WrittenParts& parts);
StatusOr<WrittenParts> parse_parts(const JsonValue& value);

/// The manifest of what all ranks have written. Errors: kInternal for a chunk that no rank wrote.
StatusOr<Manifest> join_parts(const SavePlan& plan, const std::vector<WrittenParts>& ranks);

}  // namespace millrace::io
