#include "io/checkpoint/save.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "io/checkpoint/exchange.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/plan.h"
#include "io/checkpoint/write_parts.h"

namespace millrace::io {
namespace {

class Save {
 public:
  Save(const LocalState& state, std::string folder, Gather& gather,
       const CheckpointSaveOptions& options)
      : state_(state),
        folder_(std::move(folder)),
        gather_(gather),
        options_(options),
        calls_(options.calls == nullptr ? system_file_calls() : options.calls) {}

  Status run() {
    Status status = try_run();
    // The manifest may be there: then what it names must stay.
    if (!status.ok() && !committing_) remove_written();
    return status;
  }

 private:
  [[nodiscard]] bool coordinates() const { return gather_.rank() == options_.coordinator; }
  [[nodiscard]] std::string path_of(std::string_view name) const {
    return folder_ + "/" + std::string(name);
  }

  Status try_run() {
    if (options_.coordinator < 0 || options_.coordinator >= gather_.world_size()) {
      return InvalidArgument("coordinator rank {}: expected one of {} ranks", options_.coordinator,
                             gather_.world_size());
    }
    MILLRACE_RETURN_IF_ERROR(agree_on_plan());
    MILLRACE_RETURN_IF_ERROR(write_data());
    // From here on only the coordinator knows whether the manifest is there, so it alone removes
    // files after an error.
    if (!coordinates()) written_.clear();
    return exchange(gather_, coordinates() ? commit() : Ok(), {}).status();
  }

  // First exchange: the folder is ready, and everybody knows who writes what.
  Status agree_on_plan() {
    Status status = coordinates() ? prepare_folder() : Ok();
    RankClaims claims;
    if (StatusOr<RankClaims> mine = claims_of(state_); mine.ok()) {
      claims = *std::move(mine);
    } else if (status.ok()) {
      status = std::move(mine).status();
    }
    JsonWriter out(0);
    out.begin_array().value(generation_).value(claims_text(claims)).end_array();
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<JsonValue> all,
                              exchange(gather_, std::move(status), out.take()));
    std::vector<RankClaims> ranks;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const auto* const items = all[rank].get_if<JsonItems>();
      const auto* const text =
          items == nullptr || items->size() != 2 ? nullptr : (*items)[1].get_if<std::string>();
      const auto generation = text == nullptr ? std::nullopt : (*items)[0].count();
      if (!generation) return Internal("rank {} sent no claims", rank);
      if (static_cast<int32_t>(rank) == options_.coordinator) generation_ = *generation;
      MILLRACE_ASSIGN_OR_RETURN(RankClaims parsed, parse_claims(*text));
      ranks.push_back(std::move(parsed));
    }
    MILLRACE_ASSIGN_OR_RETURN(plan_, make_save_plan(ranks, options_.coordinator));
    return Ok();
  }

  // Makes the folder; finds a number that no file in it has; removes what a save that was cut off
  // has left.
  Status prepare_folder() {
    MILLRACE_RETURN_IF_ERROR(make_folders(*calls_, folder_, options_.sync));
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> names, calls_->list(folder_));
    const bool complete = std::ranges::binary_search(names, kManifestName);
    if (complete && options_.replace == Replace::kNo) {
      return Status(StatusCode::kUsage, "there is a checkpoint already")
          .in_file(folder_)
          .with_hint("--force replaces existing outputs");
    }
    for (const std::string& name : names) {
      const auto generation = generation_of(name);
      if (generation) generation_ = std::max(generation_, *generation + 1);
      if (!complete && generation) MILLRACE_RETURN_IF_ERROR(calls_->remove(path_of(name)));
    }
    if (!complete) generation_ = 0;
    return calls_->remove(path_of(kTemporaryManifest));
  }

  // Second exchange: what this rank has written.
  Status write_data() {
    WriteParts writer(*calls_, folder_, options_);
    StatusOr<WrittenParts> mine = writer.write(state_, plan_, gather_.rank(), generation_);
    for (const std::string& name : writer.created()) written_.push_back(path_of(name));
    std::string text;
    Status status;
    if (mine.ok()) {
      text = parts_text(*mine);
    } else {
      status = std::move(mine).status();
    }
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<JsonValue> all,
                              exchange(gather_, std::move(status), std::move(text)));
    if (!coordinates()) return Ok();
    for (size_t rank = 0; rank < all.size(); ++rank) {
      MILLRACE_ASSIGN_OR_RETURN(WrittenParts parts, parse_parts(all[rank]));
      parts_.push_back(std::move(parts));
    }
    return Ok();
  }

  Status commit() {
    MILLRACE_ASSIGN_OR_RETURN(Manifest manifest, join_parts(plan_, parts_));
    manifest.step = options_.step;
    manifest.world_size = gather_.world_size();
    manifest.block_bytes = options_.block_bytes;
    manifest.user = state_.user;
    const std::string text = manifest_text(manifest);
    // What no reader would take must not be written. This also finds a folder that is not the same
    // place for all ranks.
    MILLRACE_RETURN_IF_ERROR(parse_manifest(text, path_of(kManifestName)).status());
    for (const StoredFile& file : manifest.files) {
      written_.push_back(path_of(file.name));
      StatusOr<std::unique_ptr<ReadableFile>> there = calls_->open(path_of(file.name));
      if (!there.ok()) {
        return std::move(there).status().with_note(
            "a data file of another rank is not in the coordinator's folder");
      }
    }
    MILLRACE_RETURN_IF_ERROR(publish(text));
    return options_.replace == Replace::kYes ? remove_replaced(manifest) : Ok();
  }

  Status publish(const std::string& text) {
    const std::string temporary = path_of(kTemporaryManifest);
    written_.push_back(temporary);
    if (options_.sync) MILLRACE_RETURN_IF_ERROR(calls_->sync_folder(folder_));
    MILLRACE_ASSIGN_OR_RETURN(const auto file, calls_->create(temporary, text.size()));
    const std::string_view piece = text;
    MILLRACE_RETURN_IF_ERROR(file->write({&piece, 1}));
    if (options_.sync) MILLRACE_RETURN_IF_ERROR(file->sync());
    MILLRACE_RETURN_IF_ERROR(file->close());
    committing_ = true;
    if (Status status = calls_->rename(temporary, path_of(kManifestName)); !status.ok()) {
      // A disk may have renamed and still report an error.
      committing_ = !calls_->open(temporary).ok();
      return status;
    }
    return options_.sync ? calls_->sync_folder(folder_) : Ok();
  }

  // Data files of the checkpoint that was replaced.
  Status remove_replaced(const Manifest& manifest) {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> names, calls_->list(folder_));
    for (const std::string& name : names) {
      const bool named = std::ranges::binary_search(manifest.files, name, {}, &StoredFile::name);
      if (generation_of(name) && !named) MILLRACE_RETURN_IF_ERROR(calls_->remove(path_of(name)));
    }
    return Ok();
  }

  // The error of the save is what counts; a disk that refuses to remove leaves files that the next
  // save or gc removes.
  void remove_written() {
    for (const std::string& path : written_) static_cast<void>(calls_->remove(path).ok());
  }

  const LocalState& state_;
  std::string folder_;
  Gather& gather_;
  const CheckpointSaveOptions& options_;
  std::shared_ptr<FileCalls> calls_;
  int64_t generation_ = 0;
  SavePlan plan_;
  std::vector<WrittenParts> parts_;   // by rank; of the coordinator
  std::vector<std::string> written_;  // paths to remove after an error
  bool committing_ = false;
};

std::string without_slash(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

}  // namespace

Status save_state_dict(const LocalState& state, const std::string& folder, Gather& gather,
                       const CheckpointSaveOptions& options) {
  if (folder.empty()) return InvalidArgument("the folder of the checkpoint has no name");
  return Save(state, without_slash(folder), gather, options).run();
}

Status save_state_dict(const LocalState& state, const std::string& folder,
                       const CheckpointSaveOptions& options) {
  SingleRank alone;
  return save_state_dict(state, folder, alone, options);
}

}  // namespace millrace::io
