#include "io/checkpoint/commit.h"

#include <algorithm>
#include <utility>

#include "framework/base/errors.h"
#include "io/checkpoint/write_parts.h"

namespace millrace::io {

Status CheckpointFolder::prepare() {
  MILLRACE_RETURN_IF_ERROR(make_folders(calls_, folder_, options_.sync));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> names, calls_.list(folder_));
  const bool complete = std::ranges::binary_search(names, kManifestName);
  if (complete && options_.replace == Replace::kNo) {
    return Status(StatusCode::kUsage, "there is a checkpoint already")
        .in_file(folder_)
        .with_hint("--force replaces existing outputs");
  }
  for (const std::string& name : names) {
    const auto generation = generation_of(name);
    if (generation) generation_ = std::max(generation_, *generation + 1);
    if (!complete && generation) MILLRACE_RETURN_IF_ERROR(calls_.remove(path_of(name)));
  }
  if (!complete) generation_ = 0;
  return calls_.remove(path_of(kTemporaryManifest));
}

Status CheckpointFolder::commit(const Manifest& manifest) {
  const std::string text = manifest_text(manifest);
  // What no reader would take must not be written.
  MILLRACE_RETURN_IF_ERROR(parse_manifest(text, path_of(kManifestName)).status());
  for (const StoredFile& file : manifest.files) {
    StatusOr<std::unique_ptr<ReadableFile>> there = calls_.open(path_of(file.name));
    if (!there.ok()) {
      return std::move(there).status().with_note(
          "a data file is not there: the folder must be the same place for all ranks");
    }
  }
  MILLRACE_RETURN_IF_ERROR(publish(text));
  return options_.replace == Replace::kYes ? remove_replaced(manifest) : Ok();
}

Status CheckpointFolder::publish(const std::string& text) {
  const std::string temporary = path_of(kTemporaryManifest);
  written_.push_back(temporary);
  if (options_.sync) MILLRACE_RETURN_IF_ERROR(calls_.sync_folder(folder_));
  MILLRACE_ASSIGN_OR_RETURN(const auto file, calls_.create(temporary, text.size()));
  const std::string_view piece = text;
  MILLRACE_RETURN_IF_ERROR(file->write({&piece, 1}));
  if (options_.sync) MILLRACE_RETURN_IF_ERROR(file->sync());
  MILLRACE_RETURN_IF_ERROR(file->close());
  committing_ = true;
  if (Status status = calls_.rename(temporary, path_of(kManifestName)); !status.ok()) {
    // A disk may have renamed and still report an error.
    committing_ = !calls_.open(temporary).ok();
    return status;
  }
  return options_.sync ? calls_.sync_folder(folder_) : Ok();
}

Status CheckpointFolder::remove_replaced(const Manifest& manifest) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> names, calls_.list(folder_));
  for (const std::string& name : names) {
    const bool named = std::ranges::binary_search(manifest.files, name, {}, &StoredFile::name);
    if (generation_of(name) && !named) MILLRACE_RETURN_IF_ERROR(calls_.remove(path_of(name)));
  }
  return Ok();
}

void CheckpointFolder::roll_back() {
  if (committing_) return;
  for (const std::string& path : written_) static_cast<void>(calls_.remove(path).ok());
}

}  // namespace millrace::io
