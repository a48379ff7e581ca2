#include "io/checkpoint/commit.h"

#include <algorithm>
#include <utility>

#include "framework/base/errors.h"
#include "io/checkpoint/write_parts.h"

namespace millrace::io {

Status CheckpointFolder::look() {
  made_ = calls_.list(folder_).status().code() == StatusCode::kNotFound;
  MILLRACE_RETURN_IF_ERROR(make_folders(calls_, folder_, options_.sync));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> names, calls_.list(folder_));
  complete_ = std::ranges::binary_search(names, kManifestName);
  if (complete_ && options_.replace == Replace::kNo) {
    return Status(StatusCode::kUsage, "a checkpoint already exists")
        .in_file(folder_)
        .with_hint("--force replaces existing outputs");
  }
  for (const std::string& name : names) {
    const auto generation = generation_of(name);
    if (generation) generation_ = std::max(generation_, *generation + 1);
    if (is_temporary_manifest(name)) MILLRACE_RETURN_IF_ERROR(calls_.remove(path_of(name)));
  }
  return Ok();
}

Status CheckpointFolder::begin(int64_t generation, bool any_complete) {
  generation_ = generation;
  if (any_complete) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> names, calls_.list(folder_));
  for (const std::string& name : names) {
    const auto found = generation_of(name);
    if (found && *found < generation) MILLRACE_RETURN_IF_ERROR(calls_.remove(path_of(name)));
  }
  return Ok();
}

Status CheckpointFolder::prepare() {
  MILLRACE_RETURN_IF_ERROR(look());
  MILLRACE_RETURN_IF_ERROR(begin(generation_, complete_));
  // The folder has no data files now, and there are no other writers.
  if (!complete_) generation_ = 0;
  return Ok();
}

StatusOr<bool> CheckpointFolder::has_file(const StoredFile& file) const {
  const StatusOr<std::unique_ptr<ReadableFile>> there = calls_.open(path_of(file.name));
  if (there.ok()) return (*there)->size() == file.size;
  if (there.status().code() == StatusCode::kNotFound) return false;
  return there.status();
}

Status CheckpointFolder::check_file(const StoredFile& file) const {
  MILLRACE_ASSIGN_OR_RETURN(const bool is_there, has_file(file));
  if (is_there) return Ok();
  return IoError("the file that was written is not there").in_file(path_of(file.name));
}

StatusOr<bool> CheckpointFolder::has_files_of(const Manifest& manifest) const {
  for (const StoredFile& file : manifest.files) {
    MILLRACE_ASSIGN_OR_RETURN(const bool is_there, has_file(file));
    if (!is_there) return false;
  }
  return true;
}

Status CheckpointFolder::commit(const Manifest& manifest) {
  const std::string text = manifest_text(manifest);
  // Do not write a manifest that readers would reject.
  MILLRACE_RETURN_IF_ERROR(parse_manifest(text, path_of(kManifestName)).status());
  for (const StoredFile& file : manifest.files) MILLRACE_RETURN_IF_ERROR(check_file(file));
  MILLRACE_RETURN_IF_ERROR(write_temporary(text, kTemporaryManifest));
  MILLRACE_RETURN_IF_ERROR(publish());
  return options_.replace == Replace::kYes ? remove_replaced(manifest) : Ok();
}

Status CheckpointFolder::write_manifest(const Manifest& manifest, const std::string& text,
                                        int32_t rank) {
  for (const StoredFile& file : manifest.files) {
    const bool own = std::ranges::find(written_, path_of(file.name)) != written_.end();
    if (own) MILLRACE_RETURN_IF_ERROR(check_file(file));
  }
  return write_temporary(text, temporary_manifest_name(rank));
}

Status CheckpointFolder::write_temporary(const std::string& text, std::string_view name) {
  temporary_ = path_of(name);
  written_.push_back(temporary_);
  if (options_.sync) MILLRACE_RETURN_IF_ERROR(calls_.sync_folder(folder_));
  MILLRACE_ASSIGN_OR_RETURN(
      const auto file, calls_.create(temporary_, {.bytes = text.size(), .sync = options_.sync}));
  const std::string_view piece = text;
  MILLRACE_RETURN_IF_ERROR(file->write({&piece, 1}));
  if (options_.sync) MILLRACE_RETURN_IF_ERROR(file->sync());
  return file->close();
}

Status CheckpointFolder::publish() {
  committing_ = true;
  if (Status status = calls_.rename(temporary_, path_of(kManifestName)); !status.ok()) {
    // Some disks report an error although the rename happened.
    committing_ = !calls_.open(temporary_).ok();
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
  if (committing_ || held_) return;
  for (const std::string& path : written_) static_cast<void>(calls_.remove(path).ok());
  // This fails, as intended, if another rank or process has put something into the folder.
  if (made_) static_cast<void>(calls_.remove_folder(folder_).ok());
}

Status withdraw_checkpoint(FileCalls& calls, const std::string& folder) {
  MILLRACE_RETURN_IF_ERROR(calls.remove(folder + "/" + std::string(kManifestName)));
  Status status = calls.sync_folder(folder);
  return status.code() == StatusCode::kNotFound ? Ok() : status;
}

Status remove_withdrawn(FileCalls& calls, const std::string& folder) {
  StatusOr<std::vector<std::string>> names = calls.list(folder);
  if (names.status().code() == StatusCode::kNotFound) return Ok();
  if (!names.ok()) return std::move(names).status();
  bool others = false;
  for (const std::string& name : *names) {
    if (generation_of(name) || is_temporary_manifest(name)) {
      MILLRACE_RETURN_IF_ERROR(calls.remove(folder + "/" + name));
    } else {
      others = true;
    }
  }
  return others ? Ok() : calls.remove_folder(folder);
}

}  // namespace millrace::io
