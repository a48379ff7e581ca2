#include "io/checkpoint/save.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "io/checkpoint/arrays.h"
#include "io/checkpoint/commit.h"
#include "io/checkpoint/exchange.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/plan.h"
#include "io/checkpoint/write_parts.h"
#include "io/paths.h"

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
        calls_(options.calls == nullptr ? system_file_calls() : options.calls),
        target_(*calls_, folder_, options) {}

  Status run() {
    Status status = try_run();
    if (!status.ok()) target_.roll_back();
    return status;
  }

  [[nodiscard]] bool spread() const { return spread_; }

 private:
  [[nodiscard]] bool coordinates() const { return gather_.rank() == options_.coordinator; }

  Status try_run() {
    if (options_.coordinator < 0 || options_.coordinator >= gather_.world_size()) {
      return InvalidArgument("coordinator rank {}: expected one of {} ranks", options_.coordinator,
                             gather_.world_size());
    }
    MILLRACE_RETURN_IF_ERROR(agree_on_plan());
    MILLRACE_RETURN_IF_ERROR(write_data());
    return publish();
  }

  // First exchange. Afterwards the folders are ready and every rank knows who writes what.
  Status agree_on_plan() {
    const bool alone = gather_.world_size() == 1;
    Status status = alone ? target_.prepare() : target_.look();
    RankClaims claims;
    if (Status claimed = make_claims(claims); status.ok()) status = std::move(claimed);
    JsonWriter out(0);
    out.begin_array().value(target_.generation()).value(target_.complete() ? 1 : 0);
    out.value(claims_text(claims)).end_array();
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<JsonValue> all,
                              exchange(gather_, std::move(status), out.take()));
    std::vector<RankClaims> ranks;
    int64_t generation = 0;
    bool any_complete = false;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const auto* const items = all[rank].get_if<JsonItems>();
      const bool whole = items != nullptr && items->size() == 3;
      const auto* const text = whole ? (*items)[2].get_if<std::string>() : nullptr;
      const auto number = whole ? (*items)[0].count() : std::nullopt;
      const auto complete = whole ? (*items)[1].count() : std::nullopt;
      if (text == nullptr || !number || !complete) return Internal("rank {} sent no claims", rank);
      generation = std::max(generation, *number);
      any_complete = any_complete || *complete != 0;
      MILLRACE_ASSIGN_OR_RETURN(RankClaims parsed, parse_claims(*text));
      ranks.push_back(std::move(parsed));
    }
    MILLRACE_ASSIGN_OR_RETURN(plan_, make_save_plan(ranks, options_.coordinator));
    if (!alone) begun_ = target_.begin(generation, any_complete);
    return Ok();
  }

  Status make_claims(RankClaims& claims) {
    MILLRACE_ASSIGN_OR_RETURN(flat_, flatten(state_));
    MILLRACE_ASSIGN_OR_RETURN(claims, claims_of(flat_.state));
    claims.arrays = flat_.arrays;
    return Ok();
  }

  // Second exchange: the list of files and chunks that each rank has written.
  Status write_data() {
    WriteParts writer(*calls_, folder_, options_);
    StatusOr<WrittenParts> mine =
        begun_.ok() ? writer.write(flat_.state, plan_, gather_.rank(), target_.generation())
                    : StatusOr<WrittenParts>(begun_);
    for (const std::string& name : writer.created()) target_.add_written(name);
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

  StatusOr<Manifest> make_manifest() const {
    MILLRACE_ASSIGN_OR_RETURN(Manifest manifest, join_parts(plan_, parts_));
    manifest.step = options_.step;
    manifest.world_size = gather_.world_size();
    manifest.block_bytes = options_.block_bytes;
    manifest.user = state_.user;
    return manifest;
  }

  // Runs on the coordinator. \param to_all  receives the manifest if every rank has to write it
  Status commit(std::string& to_all) {
    MILLRACE_ASSIGN_OR_RETURN(const Manifest manifest, make_manifest());
    if (gather_.world_size() > 1) {
      MILLRACE_ASSIGN_OR_RETURN(const bool is_shared, target_.has_files_of(manifest));
      if (!is_shared) {
        to_all = manifest_text(manifest);
        return Ok();
      }
    }
    for (const StoredFile& file : manifest.files) target_.add_written(file.name);
    return target_.commit(manifest);
  }

  // Third exchange. If the coordinator finds all files in its folder, it commits; otherwise it
  // sends the manifest to all ranks.
  Status publish() {
    // From here only the coordinator knows whether the manifest has its final name, so only the
    // coordinator removes files after an error.
    if (!coordinates()) target_.hold_written();
    std::string manifest;
    Status status = coordinates() ? commit(manifest) : Ok();
    std::string payload;
    if (!manifest.empty()) {
      JsonWriter out(0);
      out.begin_array().value(manifest).end_array();
      payload = out.take();
    }
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<JsonValue> all,
                              exchange(gather_, std::move(status), std::move(payload)));
    const auto* const items = all[static_cast<size_t>(options_.coordinator)].get_if<JsonItems>();
    if (items == nullptr) return Ok();
    const auto* const text = items->empty() ? nullptr : items->front().get_if<std::string>();
    if (text == nullptr) return Internal("rank {} sent no manifest", options_.coordinator);
    spread_ = true;
    target_.take_written();
    return publish_on_every_disk(*text);
  }

  // No rank renames its manifest to the final name before all ranks have their manifest and files
  // on disk: a single manifest with the final name declares the checkpoint complete.
  Status publish_on_every_disk(const std::string& text) {
    Manifest manifest;
    Status status;
    if (StatusOr<Manifest> parsed =
            parse_manifest(text, folder_ + "/" + std::string(kManifestName));
        parsed.ok()) {
      manifest = *std::move(parsed);
      status = target_.write_manifest(manifest, text, gather_.rank());
    } else {
      status = std::move(parsed).status();
    }
    MILLRACE_RETURN_IF_ERROR(exchange(gather_, std::move(status), {}).status());
    // Another rank may have published its manifest even if this rank receives an error.
    target_.hold_written();
    MILLRACE_RETURN_IF_ERROR(exchange(gather_, target_.publish(), {}).status());
    return options_.replace == Replace::kYes ? target_.remove_replaced(manifest) : Ok();
  }

  const LocalState& state_;
  std::string folder_;
  Gather& gather_;
  const CheckpointSaveOptions& options_;
  std::shared_ptr<FileCalls> calls_;
  CheckpointFolder target_;
  FlatState flat_;
  SavePlan plan_;
  Status begun_;                     // outcome of preparing the folder
  std::vector<WrittenParts> parts_;  // by rank; only on the coordinator
  bool spread_ = false;              // the ranks do not share one folder
};

}  // namespace

Status save_state_dict(const LocalState& state, const std::string& folder, Gather& gather,
                       const CheckpointSaveOptions& options) {
  return save_together(state, folder, gather, options).status();
}

StatusOr<SaveOutcome> save_together(const LocalState& state, const std::string& folder,
                                    Gather& gather, const CheckpointSaveOptions& options) {
  if (folder.empty()) return InvalidArgument("the path of the checkpoint folder is empty");
  Save save(state, without_slash(folder), gather, options);
  MILLRACE_RETURN_IF_ERROR(save.run());
  return SaveOutcome{save.spread()};
}

Status save_state_dict(const LocalState& state, const std::string& folder,
                       const CheckpointSaveOptions& options) {
  SingleRank alone;
  return save_state_dict(state, folder, alone, options);
}

}  // namespace millrace::io
